"""What a server of a model needs of the machine that runs it, and how long it may take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lmi_backend.printable import GIB

if TYPE_CHECKING:
    from lmi_backend.plan import EnginePlan

LEAVE_SECONDS: Final = 10
"""Time until no router sends requests to a pod that is being deleted."""
STOP_SECONDS: Final = 30
"""From the end of the last request to that of the last process."""
_STARTUP_PERIOD: Final = 10
_SERVER_GIB: Final = 8
"""Host memory of tritonserver, stub, front end and what they send; workers have more."""
_DEVICE_GIB: Final = 8
"""Host memory of a GPU's process: its libraries, CUDA's context and pinned buffers."""
_SHARED_GIB: Final = 2
_DISK_GIB: Final = 10
"""Disk of compiled kernels and small files, in addition to the weights."""
UNKNOWN_STORAGE: Final = 200 * GIB
"""Of a model whose size is not known."""
DOWNLOAD_RATE: Final = 20_000_000
"""Bytes a second of a slow download."""
UNKNOWN_DOWNLOAD_SECONDS: Final = UNKNOWN_STORAGE // DOWNLOAD_RATE
_SERVER_CPUS: Final = 3
"""Tritonserver, stub and front end."""
_WORKER_CPUS: Final = 2
"""A worker's front end and its engine's core, in addition to a process for each device."""


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
    storage: int = 0
    """Bytes of disk for a model that is downloaded; 0 if its size is not known."""
    load_seconds: int = 1800
    """Until a model that is there takes requests, at most."""
    download_seconds: int = 0
    """Before it loads, if the server downloads the model."""
    request_seconds: int = 240
    """That one request may take."""

    @classmethod
    def of(cls, plan: EnginePlan, *, is_downloaded: bool = False) -> Needs:
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
        storage = 0
        if plan.memory is not None and plan.memory.weights:
            weights = plan.memory.weights * (devices // parallel.workers if devices else 1)
            storage = (math.ceil(weights / GIB) + _DISK_GIB) * GIB
        download = (storage or UNKNOWN_STORAGE) // DOWNLOAD_RATE if is_downloaded else 0
        loads = 1 if plan.launch.parallel_loading else parallel.workers
        return cls(
            devices=devices,
            cpus=_SERVER_CPUS + _WORKER_CPUS * parallel.workers + processes,
            memory=math.ceil(memory / GIB) * GIB,
            shared_memory=shared,
            storage=storage,
            load_seconds=plan.launch.load_timeout * loads,
            download_seconds=download,
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
    def start_seconds(self) -> int:
        """From the start of a server until it takes requests."""
        return self.download_seconds + self.load_seconds

    @property
    def progress_seconds(self) -> int:
        """From the order to end a pod until the one in its place takes requests."""
        return self.grace_seconds + self.start_seconds

    @property
    def startup_failures(self) -> int:
        """Probes that may fail before a server that starts is stopped."""
        return math.ceil(self.start_seconds / _STARTUP_PERIOD)
