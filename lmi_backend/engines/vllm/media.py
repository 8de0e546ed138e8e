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
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final

import aiohttp
import psutil

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
_MOST_CHARACTERS: Final = 100
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
    connector.fetcher = compat.subclass_of(names.HTTPConnection, _Connection)()
    connector.fetcher.rules = MediaRules(hosts, _own_addresses())
    names.MEDIA_CONNECTOR_REGISTRY.register("http")(connector)


class _Connector:
    """What a MediaConnector does besides vLLM's own work; the rules of hosts are ours."""

    fetcher: Any
    allowed_local_media_path: object

    def __init__(self, *given: Any, **named: Any) -> None:
        own = {"connection": self.fetcher, "allowed_media_domains": []}
        super().__init__(*given, **named | own)

    def load_from_url(self, url: str, media_io: Any, *given: Any, **named: Any) -> Any:
        self._check(url)
        with images.counted(media_io) as reader:
            return super().load_from_url(url, reader, *given, **named)  # type: ignore[misc]

    async def load_from_url_async(self, url: str, media_io: Any, *given: Any, **named: Any) -> Any:
        self._check(url)
        await images.wait_for_room()
        load = super().load_from_url_async  # type: ignore[misc]
        with images.counted(media_io) as reader:
            return await load(url, reader, *given, **named)

    def _check(self, url: str) -> None:
        if url[:5].lower() == "file:" and not self.allowed_local_media_path:
            problem = "only data: URLs are accepted; option.allowed_local_media_path names a folder"
            raise _error(url, f"{problem} that files are read from")


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
        return self._respond(
            url,
            headers=self._headers(**(extra_headers or {})),
            timeout=aiohttp.ClientTimeout(total=timeout),
            allow_redirects=allow_redirects,
            max_redirects=_MOST_REDIRECTS + 1,
        )

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
        self, url: str, **options: Any
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        refused: list[str] = []

        def make(info: Any) -> socket.socket:
            """Make the socket for one address, as the last thing before it is connected to."""
            family, kind, protocol, _, (address, *_) = info
            if not self.rules.may_connect(address):
                refused.append(address)
                raise PermissionError(address)
            return socket.socket(family, kind, protocol)

        # A proxy of the environment would resolve names without our check; .netrc has passwords.
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(socket_factory=make),
            middlewares=[self._look],
            trust_env=False,
        ) as session:
            try:
                response = await session.get(url, **options)
            except aiohttp.ClientConnectionError as error:
                if not refused:
                    raise
                problem = f"its host has no public address; {OPTION} must list the private one"
                raise _error(url, problem) from error
            except aiohttp.TooManyRedirects as error:
                raise _error(url, f"it redirects more than {_MOST_REDIRECTS} times") from error
            except (aiohttp.InvalidURL, aiohttp.RedirectClientError) as error:
                raise _error(url, "it, or what it redirects to, is no http: URL") from error
            async with response:
                yield response

    async def _look(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        if problem := self.rules.refusal(request.url.raw_host or ""):
            raise _error(str(request.url), problem)
        return await handler(request)


def _error(url: str, problem: str) -> Exception:
    quoted = url if len(url) <= _MOST_CHARACTERS else f"{url[:_MOST_CHARACTERS]}…"
    error: Exception = names.VLLMValidationError(f"the URL {quoted!r} is refused: {problem}")
    return error


def _own_addresses() -> set[str]:
    addresses = (each for many in psutil.net_if_addrs().values() for each in many)
    return {
        each.address.partition("%")[0]
        for each in addresses
        if each.family in (socket.AF_INET, socket.AF_INET6)
    }
