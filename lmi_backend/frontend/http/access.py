"""Whether a request is let in: its key, its origin and its host."""

from __future__ import annotations

import ipaddress
import re
import socket
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from lmi_backend.clients.spec import OPERATOR, PROBE
from lmi_backend.errors import HttpError
from lmi_backend.printable import printable

if TYPE_CHECKING:
    from collections.abc import Collection

    from lmi_backend.clients.spec import Who
    from lmi_backend.frontend.http.api_keys import ApiKey, ApiKeys
    from lmi_backend.frontend.http.exchange import Exchange


ANY: Final = "*"
"""Stands for every name."""
_HOST: Final = re.compile(
    r"(?:(?P<name>[A-Za-z0-9._-]{1,253})"
    r"|\[(?P<address>[0-9A-Fa-f:.]{2,45}(?:%[A-Za-z0-9._~-]{1,32})?)\])"
    r"(?::(?P<port>[0-9]{0,5}))?"
)
_LAST_PORT: Final = 65_535


def name_in(host: str) -> str | None:
    """Return the name or the address in a `Host` header; None for what is no host."""
    match = _HOST.fullmatch(host)
    if match is None or int(match["port"] or 0) > _LAST_PORT:
        return None
    if match["name"] is None:
        return match["address"] if _is_address(match["address"]) else None
    return match["name"].lower().removesuffix(".") or None


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    return _is_address(host) and ipaddress.ip_address(host).is_loopback


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


_HEADERS: Final = "authorization, content-type, x-api-key, x-request-id"
"""What a page may send, where its browser does not say what it will."""
_NAMES: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z, \t-]{1,4096}")
_BEARER: Final = "bearer "
_SIGNED: Final = "AWS4-HMAC-SHA256"
_CORS: Final = (
    (b"vary", b"origin, access-control-request-headers"),
    (b"access-control-allow-methods", b"GET, POST, PUT, DELETE, OPTIONS"),
    (b"access-control-expose-headers", b"x-request-id, retry-after"),
    (b"access-control-max-age", b"600"),
)


class Access:
    """Decides for each request.

    A foreign name may lead here too: its owner has a DNS server give this address. A browser then
    treats the page of that name and this server as one site.

    Args:
        origins: web sites whose pages may send requests, as `https://host[:port]`; `*` for all.
        hosts: names of this server that an operator gives (--allowed-hosts); `*` for all.
        host: name or address that it listens on (--host).
    """

    def __init__(
        self, keys: ApiKeys, origins: Collection[str], hosts: Collection[str], host: str
    ) -> None:
        self._keys, self._origins, self._is_local = keys, frozenset(origins), is_loopback(host)
        """The last one: whether only this machine reaches the port; then operators need no key
        where nobody does."""
        self._has_all_names = ANY in hosts
        own = ("localhost", socket.gethostname(), host)
        self._names = {name_in(each) for each in (*hosts, *own)} - {None}
        # A page that reaches this server under another name has no key. Where none is needed, the
        # names of a port on the network are known only to those who give them.
        self._own_host = "localhost"
        """The host of the last request that named one of this server: most name the same."""
        self._guards_names = not keys.are_needed and (self._is_local or bool(hosts))

    def check_site(self, exchange: Exchange, who: Who) -> None:
        """Refuse what another web site's page makes a browser send.

        Args:
            exchange: the request.
            who: whose path it is. Probes are answered under every name.

        Raises:
            HttpError: the request's host is none (400), or not a name of this server where that
                matters, or the page's site is not one of those that may (403).
        """
        host: str | None = exchange.headers.get("host")
        is_own = self._is_own(host)
        origin = exchange.headers.get("origin")
        # Only browsers send it, and a page cannot leave it out but where it reads its own site.
        if origin is None:
            pass
        elif origin in self._origins or "*" in self._origins:
            # Libraries have headers of their own.
            wanted = exchange.headers.get("access-control-request-headers", "")
            allowed = wanted if _NAMES.fullmatch(wanted) else _HEADERS
            exchange.extra_headers += (
                (b"access-control-allow-origin", origin.encode("latin-1")),
                (b"access-control-allow-headers", allowed.encode()),
                *_CORS,
            )
        # It is compared, and not read: what is no origin is another's.
        elif origin.partition("://")[2] != host or not is_own:
            raise _forbidden("this page's site may not send requests (--allowed-origins)")
        if not is_own and (who == OPERATOR or (self._guards_names and who != PROBE)):
            raise _foreign(host)

    def check_host(self, exchange: Exchange) -> None:
        """Refuse a name that somebody else's DNS server gave this address, by HttpError (403)."""
        if not self._is_own(host := exchange.headers.get("host")):
            raise _foreign(host)

    def _is_own(self, host: str | None) -> bool:
        if host is None or host == self._own_host:  # Browsers always send one.
            return True
        if (name := name_in(host)) is None:
            text = f"Host: {printable(host, 80)!r}; accepted: a name or an address, with a port"
            raise HttpError(HTTPStatus.BAD_REQUEST, text)
        is_own = self.owns(name)
        if is_own:
            self._own_host = host
        return is_own

    def owns(self, name: str) -> bool:
        # Nobody else owns an address, or a name below localhost.
        is_ours = self._has_all_names or name in self._names or name.endswith(".localhost")
        return is_ours or _is_address(name)

    def key(self, exchange: Exchange, *, for_operator: bool) -> ApiKey | None:
        """Return the key of a request; None where nobody needs one.

        Raises:
            HttpError: it has none that is known (401), or is not an operator's (403).
        """
        if not self._keys.are_needed:
            if for_operator and not self.is_operator(None):
                text = "management needs an operator's key (--api-keys), or a port on 127.0.0.1"
                raise _forbidden(text)
            return None
        key = self._keys.find(_given(exchange))
        if for_operator and not key.is_operator:
            raise _forbidden("this key is not an operator's")
        return key

    def is_operator(self, key: ApiKey | None) -> bool:
        return self._is_local if key is None else key.is_operator


def _foreign(host: str | None) -> HttpError:
    accepted = "its addresses, localhost, and the names of --host and --allowed-hosts"
    return _forbidden(f"{host} is not a name of this server; accepted: {accepted}")


def _forbidden(text: str) -> HttpError:
    return HttpError(HTTPStatus.FORBIDDEN, text)


def _given(exchange: Exchange) -> str:
    text: str = exchange.headers.get("authorization", "")
    if text[: len(_BEARER)].lower() == _BEARER:
        return text[len(_BEARER) :].strip()
    # Whoever signs for AWS has two keys; ours is the one that is sent.
    if text.startswith(_SIGNED):
        return _signed_with(text.removeprefix(_SIGNED))
    other: str = exchange.headers.get("x-api-key", "")
    return other


def _signed_with(fields: str) -> str:
    for field in fields.split(","):
        name, _, value = field.strip().partition("=")
        if name == "Credential":
            return value.partition("/")[0]
    return ""
