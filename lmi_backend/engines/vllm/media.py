"""Replace what fetches the URLs of a body in vLLM: by its own rules it connects to any host.

With its own list of hosts vLLM resolves a name, connects to any address that comes, and follows
redirects to anywhere. Here the address is checked when the socket is made, so neither a name nor a
redirect leads to a private one.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final

import aiohttp
import psutil
from yarl import URL

from lmi_backend.engines.vllm import compat, images, names
from lmi_backend.options.kinds import ANY_HOST, HOST_NAME, NEVER, read_network

_log = logging.getLogger(__name__)


OPTION: Final = "option.allowed_media_domains"
_PUBLIC_V6: Final = ip_network("2000::/3")
_NAT64: Final = ip_network("64:ff9b::/96")


class MediaRules:
    """The user's list, read.

    Args:
        entries: names of hosts, `*`, addresses and networks; with none nothing is fetched.
        own: addresses of this machine, which are never public.
    """

    def __init__(self, entries: Collection[str], own: Collection[str] = ()) -> None:
        networks = [(entry, read_network(entry)) for entry in entries]
        self._networks = [network for _, network in networks if network is not None]
        self._names = {entry for entry, network in networks if network is None}
        self._own = frozenset(ip_address(text) for text in own)

    def refusal(self, host: str) -> str:
        """Return why no request may go to a host, as it stands in a URL; empty if one may."""
        if not self._names and not self._networks:
            return f"only data: URLs are accepted; {OPTION} lists the hosts media are fetched from"
        name = host.lower().removesuffix(".")
        if (address := _read(name)) is not None:
            if self._is_listed(address) or (ANY_HOST in self._names and self._is_public(address)):
                return ""
            return f"{OPTION} does not list this address"
        if not HOST_NAME.fullmatch(name):
            return "its host is neither a name nor an address in its usual notation"
        if name in self._names or ANY_HOST in self._names:
            return ""
        return f"{OPTION} does not list its host"

    def may_connect(self, address: str) -> bool:
        """Tell whether an address, which a listed host was resolved to, may be connected to."""
        read = _read(address)
        return read is not None and (self._is_listed(read) or self._is_public(read))

    def _is_listed(self, address: IPv4Address | IPv6Address) -> bool:
        return not _is_never(address) and any(address in network for network in self._networks)

    def _is_public(self, address: IPv4Address | IPv6Address) -> bool:
        if address in self._own or _is_never(address) or not address.is_global:
            return False
        if isinstance(address, IPv4Address):
            return True
        # Tunnels that carry an IPv4 address, which could be any.
        return address in _PUBLIC_V6 and address.sixtofour is None and address.teredo is None


def _read(text: str) -> IPv4Address | IPv6Address | None:
    """Return an address; the IPv4 one where IPv6 only wraps it."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _is_never(address: IPv4Address | IPv6Address) -> bool:
    return any(address in network for network in NEVER)


_MOST_REDIRECTS: Final = 5
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_SHOWN: Final = 100
"""Characters of a URL that its client reads in an error."""


def guard_media(hosts: Collection[str]) -> None:
    """Let vLLM fetch media from listed hosts only, and from none if that is not possible.

    vLLM gets a list that refuses every host (`images.NO_HOSTS`). Only the class of connectors that
    is registered here in place of its own opens that.
    """
    if hosts and "socket_factory" not in inspect.signature(aiohttp.TCPConnector).parameters:
        _log.warning("%s is not in force: aiohttp 3.12 or later is needed to fetch media", OPTION)
        hosts = ()
    if os.environ.get("VLLM_MEDIA_CONNECTOR", "http") != "http":
        _log.warning("VLLM_MEDIA_CONNECTOR names other code, which keeps to %s as it likes", OPTION)
    connector = compat.subclass_of(names.MediaConnector, _Connector)
    connector.rules = MediaRules(hosts, _own_addresses())
    connector.fetcher = compat.subclass_of(names.HTTPConnection, _Connection)()
    connector.fetcher.rules = connector.rules
    names.MEDIA_CONNECTOR_REGISTRY.register("http")(connector)


class _Connector:
    """What a MediaConnector does besides vLLM's own work; the rules of hosts are ours."""

    rules: MediaRules
    fetcher: Any
    allowed_local_media_path: object
    allowed_media_domains: list[str]

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        if hasattr(self, "connection"):  # else NO_HOSTS stays
            self.connection, self.allowed_media_domains = self.fetcher, []

    def load_from_url(self, url: str, media_io: Any, *given: Any, **named: Any) -> Any:
        """Return what a reader makes of a URL."""
        _check(self.rules, url, self.allowed_local_media_path)
        images.bound_reader(media_io)
        return super().load_from_url(url, media_io, *given, **named)  # type: ignore[misc]

    async def load_from_url_async(self, url: str, media_io: Any, *given: Any, **named: Any) -> Any:
        """Return the same, without waiting for it."""
        _check(self.rules, url, self.allowed_local_media_path)
        load = super().load_from_url_async  # type: ignore[misc]
        return await images.load_bounded(media_io, lambda: load(url, media_io, *given, **named))


class _Connection:
    """What an HTTPConnection does here; the number of tries and the size limit stay vLLM's.

    Each fetch has a session of its own: no cookie of one client's host is there for another.
    """

    rules: MediaRules
    _headers: Callable[..., dict[str, str]]
    async_get_bytes: Callable[..., Any]

    async def get_async_response(
        self,
        url: str,
        *,
        timeout: float | None = None,
        extra_headers: Mapping[str, str] | None = None,
        allow_redirects: bool = True,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """See vLLM's `HTTPConnection`."""
        options: dict[str, Any] = {
            "headers": self._headers(**(extra_headers or {})),
            "timeout": aiohttp.ClientTimeout(total=timeout),
            "allow_redirects": False,
        }
        return self._respond(url, options, _MOST_REDIRECTS if allow_redirects else 0)

    def get_response(self, url: str, **_: Any) -> Any:
        """Refuse: vLLM's way without an event loop looks at no address."""
        raise _error(url, "vLLM may not fetch it this way")

    def get_bytes(self, url: str, **options: Any) -> bytes:
        """See vLLM's `HTTPConnection`; its caller waits, as it does there."""
        with ThreadPoolExecutor(1) as pool:
            # A thread, since the caller's may have a loop that runs.
            data: bytes = pool.submit(asyncio.run, self.async_get_bytes(url, **options)).result()
        return data

    @asynccontextmanager
    async def _respond(
        self, url: str, options: dict[str, Any], redirects: int
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        refused: list[str] = []
        # A proxy of the environment would resolve names without our check; .netrc has passwords.
        session = aiohttp.ClientSession(connector=self._connector(refused), trust_env=False)
        async with session:
            ask = partial(_ask, session, options, refused)
            async with await self._follow(ask, url, redirects) as response:
                yield response

    async def _follow(
        self,
        ask: Callable[[URL], Awaitable[aiohttp.ClientResponse]],
        url: str,
        redirects: int,
    ) -> aiohttp.ClientResponse:
        address = _read_url(self.rules, url)
        for _ in range(redirects + 1):
            response = await ask(address)
            target = response.headers.get("Location") if redirects else None
            if target is None or response.status not in _REDIRECTS:
                return response
            response.close()
            address = _read_url(self.rules, target, address)
        raise _error(url, f"it redirects more than {redirects} times")

    def _connector(self, refused: list[str]) -> aiohttp.TCPConnector:
        def make(info: Any) -> socket.socket:
            """Make the socket for one address, as the last thing before it is connected to."""
            family, kind, protocol, _, (address, *_) = info
            if not self.rules.may_connect(address):
                refused.append(address)
                raise PermissionError(address)
            return socket.socket(family, kind, protocol)

        return aiohttp.TCPConnector(socket_factory=make)


async def _ask(
    session: aiohttp.ClientSession, options: dict[str, Any], refused: list[str], address: URL
) -> aiohttp.ClientResponse:
    try:
        return await session.get(address, **options)
    except aiohttp.ClientConnectionError as error:
        if not refused:
            raise
        problem = f"its host has no public address; {OPTION} must list the private one"
        raise _error(str(address), problem) from error


def _check(rules: MediaRules, url: str, folder: object) -> None:
    """Refuse a URL at the first look.

    Args:
        folder: where files may come from; empty for nowhere.
    """
    scheme = url.partition(":")[0].lower()
    if scheme == "data":
        return
    if scheme == "file":
        if not folder:
            problem = "only data: URLs are accepted; option.allowed_local_media_path names a folder"
            raise _error(url, f"{problem} that files are read from")
        return
    _read_url(rules, url)


def _read_url(rules: MediaRules, url: str, base: URL | None = None) -> URL:
    """Return the very URL that is fetched: read twice, it could be two."""
    if any(letter <= " " or letter in "\\\x7f" for letter in url):
        raise _error(url, "it has a blank, a backslash or a control character")
    try:
        address = URL(url) if base is None else base.join(URL(url))
        host = address.raw_host or ""
    except ValueError as error:
        raise _error(url, "it cannot be read") from error
    if address.scheme not in ("http", "https"):
        raise _error(url, "its scheme is none of data, http, https and file")
    if address.raw_user is not None or address.raw_password is not None:
        raise _error(url, "it has a user's name before its host")
    if problem := rules.refusal(host):
        raise _error(url, problem)
    return address


def _error(url: str, problem: str) -> Exception:
    shown = url if len(url) <= _SHOWN else f"{url[:_SHOWN]}…"
    error: Exception = names.VLLMValidationError(f"the URL {shown!r} is refused: {problem}")
    return error


def _own_addresses() -> set[str]:
    addresses = (each for many in psutil.net_if_addrs().values() for each in many)
    return {
        each.address.partition("%")[0]
        for each in addresses
        if each.family in (socket.AF_INET, socket.AF_INET6)
    }
