"""What the libraries of a rank read from its environment: its rank, address and interface."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Mapping
from typing import Final

# What torch calls them, and each engine that builds on it.
_NAMES: Final = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
}
_GET_ADDRESS: Final = 0x8915
"""SIOCGIFADDR of linux/sockios.h."""


def torch_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which torch knows a rank; none outside a group."""
    return {name: environment[own] for name, own in _NAMES.items() if own in environment}


def network_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what libraries of a rank would otherwise guess from the host's name, often wrongly.

    Nothing where all ranks are on this machine.
    """
    if "MASTER_ADDR" not in environment:
        return {}
    own = own_address(environment["MASTER_ADDR"])
    if ipaddress.ip_address(own).is_loopback:
        return {}
    return {"VLLM_HOST_IP": own, "GLOO_SOCKET_IFNAME": _interface_of(own)}


def own_address(peer: str) -> str:
    """Return this machine's IPv4 address on the way to another; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, 9))
        address: str = probe.getsockname()[0]
    return address


def _interface_of(address: str) -> str:
    """Return the name of the interface that has an address; empty if none has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe, _GET_ADDRESS, request)
            except OSError:
                # It has no IPv4 address.
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return ""
