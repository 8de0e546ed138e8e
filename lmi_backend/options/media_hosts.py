"""The list of hosts that media may be fetched from: what a line of it may say."""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final

from lmi_backend.options.kinds import ITEMS, Kind

ANY_HOST: Final = "*"
HOST_NAME: Final = re.compile(r"(?:[a-z0-9_-]{1,63}\.)*[a-z][a-z0-9_-]{0,62}")
"""In lower case, without the last dot. The last label of a name never begins with a digit; where it
does, the system may read the whole as a number: 0x7f.1 is 127.0.0.1."""
NEVER: Final = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "168.63.129.16/32", "224.0.0.0/4",
        "240.0.0.0/4", "::/128", "fe80::/10", "ff00::/8", "fd00:ec2::/32",
        "fd20:ce::/32",
    )
)  # fmt: skip
"""What no list can open: this machine as 0.0.0.0, link-local, multicast and reserved addresses.
Also the clouds' services for a machine, which may hand out its keys."""


def read_network(entry: str) -> IPv4Network | IPv6Network | None:
    """Return an entry that is an address or a network, such as 10.2.0.0/16; None for others."""
    try:
        return ip_network(entry)
    except ValueError:
        return None


def _read(text: str) -> list[str]:
    entries = [str(item).strip().lower().removesuffix(".") for item in ITEMS.parse(text)]
    for entry in entries:
        network = read_network(entry)
        if network is None and entry != ANY_HOST and not HOST_NAME.fullmatch(entry):
            raise ValueError(f"has {entry!r}, which is no host")
        if network is not None and any(
            network.version == never.version and network.subnet_of(never)  # type: ignore[arg-type]
            for never in NEVER
        ):
            raise ValueError(f"has {entry}, which media are never fetched from")
    return entries


MEDIA_HOSTS: Final = Kind(
    "media hosts",
    _read,
    "names of hosts, addresses or networks, with commas between or a JSON list; * is any host",
)
