"""vLLM as a group of MPI ranks: to vLLM each rank is a node with one device.

vLLM's own way of serving over nodes: rank 0 schedules and broadcasts each step, the others
compute. Its `external_launcher` would schedule on every rank, and has no server.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping


def group_arguments(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return vLLM's arguments of a rank, from the variables torch uses; none outside a group."""
    if "RANK" not in environment:
        return {}
    return {
        "distributed_executor_backend": "mp",
        "nnodes": int(environment["WORLD_SIZE"]),
        "node_rank": int(environment["RANK"]),
        "master_addr": environment["MASTER_ADDR"],
        "master_port": int(environment["MASTER_PORT"]),
    }


def take_device(environment: MutableMapping[str, str]) -> None:
    """Leave a rank one of its node's devices: to vLLM it is a node with one."""
    devices = [name for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if "RANK" in environment and devices:
        environment["CUDA_VISIBLE_DEVICES"] = devices[int(environment["LOCAL_RANK"])]


def prepare() -> dict[str, Any]:
    """Make this process a rank if it is one; return vLLM's arguments for that."""
    take_device(os.environ)
    return group_arguments(os.environ)
