"""What a server of a model needs of the machine that runs it, and how long it may take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lmi_backend.plan import EnginePlan

GIB: Final = 1 << 30
PORT: Final = 8080
"""Of the front end: LMI's and SageMaker's."""
USER: Final = 1001
"""Of the images."""
LEAVE_SECONDS: Final = 10
"""Until no router sends requests to a pod that is being ended."""
STOP_SECONDS: Final = 30
"""From the end of the last request to that of the last process."""
PROBE_SECONDS: Final = 5
"""More than the front end gives the models to answer a probe."""
STARTUP_PERIOD: Final = 10
LIVE_PERIOD: Final = 10
LIVE_FAILURES: Final = 6
"""Longer than a front end may be silent before `serve` starts another."""
_SERVER_GIB: Final = 8
"""Host memory of tritonserver, stub, front end and what they send, beside the workers."""
_DEVICE_GIB: Final = 8
"""Host memory of a GPU's process: its libraries, CUDA's context and pinned buffers."""
_SHARED_GIB: Final = 2
_SERVER_CPUS: Final = 3
"""Tritonserver, stub and front end."""
_WORKER_CPUS: Final = 2
"""A worker's front end and its engine's core, beside a process a device."""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Of one server."""

    devices: int = 0
    """GPUs."""
    cpus: int = _SERVER_CPUS + _WORKER_CPUS
    memory: int = _SERVER_GIB * GIB
    """Bytes of host memory, shared memory among it."""
    shared_memory: int = _SHARED_GIB * GIB
    """Bytes of /dev/shm."""
    load_seconds: int = 1800
    """Until the model takes requests, at most."""
    request_seconds: int = 240
    """That one request may take."""

    @classmethod
    def of(cls, plan: EnginePlan) -> Needs:
        """Return what a plan needs.

        A device, or a rank on a CPU, takes a process; on a CPU the model is in host memory.
        """
        parallel = plan.parallel
        devices = len({name for group in parallel.device_groups for name in group})
        processes = devices or parallel.workers * parallel.processes
        shared = _SHARED_GIB * GIB + max(0, processes - 1) * GIB
        memory = _SERVER_GIB * GIB + shared
        if devices:
            memory += devices * _DEVICE_GIB * GIB
        elif plan.memory is not None:
            model = plan.memory.weights + plan.memory.step + max(0, plan.memory.kv_cache)
            memory += processes * model
        loads = 1 if plan.launch.parallel_loading else parallel.workers
        return cls(
            devices=devices,
            cpus=_SERVER_CPUS + _WORKER_CPUS * parallel.workers + processes,
            memory=math.ceil(memory / GIB) * GIB,
            shared_memory=shared,
            load_seconds=plan.launch.load_timeout * loads,
            request_seconds=plan.limits.request_timeout,
        )

    @property
    def grace_seconds(self) -> int:
        """From the order to end a pod until it is killed."""
        return LEAVE_SECONDS + self.stop_seconds

    @property
    def stop_seconds(self) -> int:
        """From the order to stop a server until it is killed."""
        return self.request_seconds + STOP_SECONDS

    @property
    def startup_failures(self) -> int:
        """Probes that may fail before a server that starts is ended."""
        return math.ceil(self.load_seconds / STARTUP_PERIOD)
