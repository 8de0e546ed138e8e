"""Whether a request is let in: its key, its origin and its host."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from lmi_backend.errors import HttpError

if TYPE_CHECKING:
    from collections.abc import Collection

    from lmi_backend.frontend.api_keys import ApiKey, ApiKeys
    from lmi_backend.frontend.exchange import Exchange

_FORBIDDEN: Final = 403
_BEARER: Final = "bearer "
_SIGNED: Final = re.compile(r"AWS4-HMAC-SHA256 .*?Credential=([^/,\s]+)/")
_CORS: Final = (
    (b"access-control-allow-methods", b"GET, POST, PUT, DELETE, OPTIONS"),
    (b"access-control-allow-headers", b"authorization, content-type, x-api-key, x-request-id"),
    (b"access-control-expose-headers", b"x-request-id, retry-after"),
    (b"access-control-max-age", b"600"),
)


class Access:
    """Decides for each request.

    Args:
        keys: those that are known.
        origins: web sites whose pages may ask, as `https://host[:port]`; `*` for all.
        hosts: further names by which browsers reach this port.
        is_local: whether only this machine reaches the port; then operators need no key where
            nobody does.
    """

    def __init__(
        self, keys: ApiKeys, origins: Collection[str], hosts: Collection[str], *, is_local: bool
    ) -> None:
        self._keys, self._origins, self._is_local = keys, frozenset(origins), is_local
        self._hosts = frozenset({"localhost", *hosts})

    def check_site(self, exchange: Exchange) -> None:
        """Refuse what another web site's page makes a browser send.

        Raises:
            HttpError: the page's site is not one of those that may (403).
        """
        host = exchange.headers.get("host", "")
        origin = exchange.headers.get("origin")
        # Only browsers send it, and a page cannot leave it out.
        if origin is None:
            return
        if origin in self._origins or "*" in self._origins:
            exchange.extra_headers += (
                (b"access-control-allow-origin", origin.encode("latin-1")),
                (b"vary", b"origin"),
                *_CORS,
            )
        elif urlsplit(origin).netloc != host or not self._is_own(host):
            raise HttpError(_FORBIDDEN, "this page's site may not ask (--allowed-origins)")

    def check_host(self, exchange: Exchange) -> None:
        """Refuse a name that somebody else's DNS server gave this address.

        Raises:
            HttpError: the request's host is not a name of this server (403).
        """
        host = exchange.headers.get("host", "")
        if not self._is_own(host):
            raise HttpError(_FORBIDDEN, "this host name is not served (--allowed-hosts)")

    def key(self, exchange: Exchange, *, for_operator: bool) -> ApiKey | None:
        """Return the key of a request; None where nobody needs one.

        Raises:
            HttpError: it has none that is known (401), or is not an operator's (403).
        """
        if not self._keys.are_needed:
            if for_operator and not self.is_operator(None):
                text = "management needs an operator's key (--api-keys), or a port on 127.0.0.1"
                raise HttpError(_FORBIDDEN, text)
            return None
        key = self._keys.find(_given(exchange))
        if for_operator and not key.is_operator:
            raise HttpError(_FORBIDDEN, "this key is not an operator's")
        return key

    def is_operator(self, key: ApiKey | None) -> bool:
        """Tell whether a request with such a key, or none where nobody needs one, may manage."""
        return self._is_local if key is None else key.is_operator

    def _is_own(self, host: str) -> bool:
        name = urlsplit(f"//{host}").hostname or ""
        try:
            # An address cannot be another site's.
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._hosts
        return True


def _given(exchange: Exchange) -> str:
    text: str = exchange.headers.get("authorization", "")
    if text.lower().startswith(_BEARER):
        return text[len(_BEARER) :].strip()
    # Whoever signs for AWS has two keys; ours is the one that is sent.
    if (signed := _SIGNED.match(text)) is not None:
        return signed[1]
    other: str = exchange.headers.get("x-api-key", "")
    return other
