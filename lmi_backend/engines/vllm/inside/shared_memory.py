"""Give the shared memory of ranks on a CPU a name, which vLLM makes of an address they lack."""

from __future__ import annotations

from functools import wraps
from typing import Any

from lmi_backend.engines.vllm.inside import names
from lmi_backend.errors import ConfigurationError


def name_shared_memory(name: str) -> None:
    """Let ranks on a CPU share memory by this name; those on GPUs do not use it."""
    if not names.current_platform.is_cpu():
        return
    try:
        rename(names.cpu_communicator._CPUSHMDistributed, name)
    except (AttributeError, ImportError) as error:
        # Two groups on one machine could read each other's memory.
        raise ConfigurationError(
            f"vLLM {names.vllm_version} cannot be served in MPI mode on a CPU: the shared memory "
            f"of its ranks cannot be named ({error}); leave out option.mpi_mode and engine=MPI"
        ) from error


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
