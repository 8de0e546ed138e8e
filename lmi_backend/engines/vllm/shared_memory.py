"""Give the shared memory of ranks on a CPU a name, which vLLM makes of an address they lack."""

from __future__ import annotations

from functools import wraps
from typing import Any


def name_shared_memory(name: str) -> None:
    """Let ranks on a CPU share memory by this name; those on GPUs do not ask for it."""
    from vllm.distributed.device_communicators import cpu_communicator  # noqa: PLC0415

    rename(cpu_communicator._CPUSHMDistributed, name)


def rename(cls: Any, name: str) -> None:
    """Have vLLM's class put a name before those it makes."""

    def unique(group: str) -> str:
        # The address has slashes, which a name of shared memory must not.
        return f"{name}-{group}".replace("/", "")

    if hasattr(cls, "make_group_name"):  # 0.17
        made = cls.make_group_name
        cls.make_group_name = staticmethod(lambda communicator: unique(made(communicator)))
        return
    join = cls._init_cpu_shm

    @wraps(join)
    def join_renamed(self: Any) -> Any:
        self.group_name = unique(self.group_name)
        return join(self)

    cls._init_cpu_shm = join_renamed
