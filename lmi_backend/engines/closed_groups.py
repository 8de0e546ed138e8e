"""Groups of torch that listen no longer than their members need to connect.

torch opens a TCP port for each group of gloo, which needs no key and keeps a descriptor for each
connection. vLLM makes a dozen groups in each process, also for one process alone. So any
local user could end that process: by connections, until it has no descriptor left. The members of a
group are connected once it has been made, and nobody else has to connect.
"""

from __future__ import annotations

import functools
import logging
import os
import socket
import stat
from typing import Any, Final

_log = logging.getLogger(__name__)

_NETWORKS: Final = (socket.AF_INET, socket.AF_INET6)


def install() -> None:
    """Close the ports of each group that this process makes from now on.

    vLLM's processes call this as a plugin (engines/vllm/plugin).
    """
    try:
        _install()
    except Exception as error:  # noqa: BLE001  engines work with open ports too
        _log.warning("groups of this torch listen on ports of this machine: %r", error)


def _install() -> None:
    # Only processes come here that have it.
    import torch.distributed as groups  # noqa: PLC0415
    from torch.distributed import distributed_c10d as makers  # noqa: PLC0415

    gloo: Any = makers.ProcessGroupGloo
    if gloo.__module__ == __name__:
        return
    vars(makers)["ProcessGroupGloo"] = _closing(gloo)
    groups.init_process_group = _without_server(groups.init_process_group, groups.HashStore)


def _closing(gloo: Any) -> Any:
    class ClosedGroup(gloo):  # type: ignore[misc]
        """A group that closes its ports when its members are connected."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            ports = _listening()
            super().__init__(*args, **kwargs)
            _close(_listening() - ports)

    return ClosedGroup


def _without_server(make: Any, own_store: Any) -> Any:
    """Return what makes the group of all ranks; a rank that is alone needs no store for others."""

    @functools.wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("world_size") == 1 and kwargs.get("store") is None:
            kwargs |= {"store": own_store(), "init_method": None}
        return make(*args, **kwargs)

    return made


def _listening() -> set[int]:
    return set(filter(_listens, map(int, os.listdir("/proc/self/fd"))))


def _listens(number: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            return False
        with socket.socket(fileno=os.dup(number)) as own:
            is_listening = own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            return own.family in _NETWORKS and bool(is_listening)
    except OSError:
        # Another thread has closed it.
        return False


def _close(numbers: set[int]) -> None:
    """Replace descriptors by one on which nothing ever comes; their owner closes them one day."""
    silent = os.eventfd(0)
    try:
        for number in numbers:
            os.dup2(silent, number, inheritable=False)
    finally:
        os.close(silent)
