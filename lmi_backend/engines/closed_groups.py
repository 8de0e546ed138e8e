"""Groups of torch that cost no port and no thread when their members are connected.

torch opens a TCP port for each group of gloo, which needs no key and keeps a descriptor for each
connection. vLLM makes a dozen groups in each process, also for one process alone. So any
local user could end that process: by connections, until it has no descriptor left. The members of a
group are connected once it has been made. Each group's thread wakes a hundred times a second.
"""

from __future__ import annotations

import functools
import logging
import os
from typing import Any

_log = logging.getLogger(__name__)


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
    device = functools.cache(gloo.create_default_device)
    made = gloo._Options()
    made._devices, made._timeout = made._devices, made._timeout  # another torch may lack them

    class ClosedGroup(gloo):  # type: ignore[misc]
        """Closes its ports when its members are connected; those of one member share a thread."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            ports = _listening()
            if args[2:] == (1,) and kwargs.keys() == {"timeout"}:
                options = gloo._Options()
                options._devices, options._timeout = [device()], kwargs.pop("timeout")
                args += (options,)
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
    import psutil  # noqa: PLC0415  engines of several ranks bring it

    process = psutil.Process()
    read = getattr(process, "net_connections", None) or process.connections  # before psutil 6
    try:
        return {each.fd for each in read("inet") if each.status == psutil.CONN_LISTEN}
    except (OSError, psutil.Error) as error:
        _log.warning("ports of this process cannot be listed, so groups keep theirs: %s", error)
        return set()


def _close(numbers: set[int]) -> None:
    """Replace descriptors by one on which nothing ever comes; their owner closes them one day."""
    silent = os.eventfd(0)
    try:
        for number in numbers:
            os.dup2(silent, number, inheritable=False)
    finally:
        os.close(silent)
