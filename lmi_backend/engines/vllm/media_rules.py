"""Which hosts and addresses a client's media may be fetched from."""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from lmi_backend.options.media_hosts import ANY_HOST, HOST_NAME, NEVER, read_network

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
