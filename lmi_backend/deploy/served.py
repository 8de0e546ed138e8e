"""A model and how it is to be run: what it needs of a machine, and where its pods run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lmi_backend.deploy.filling import STORE
from lmi_backend.printable import GIB

if TYPE_CHECKING:
    from collections.abc import Mapping

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


EXTRAS: Final = {
    "monitor": "a PodMonitor of the Prometheus operator",
    "keda": "a ScaledObject that scales by waiting requests and the KV cache",
    "gateway": "a Gateway, an HTTPRoute and an InferencePool with an endpoint picker",
    "lora": "the claim `adapters`, mounted at /adapters",
    "cache": "a claim for downloads, and a Job in download/ that fills it first",
}


_MOST_REPLICAS: Final = 8


@dataclass(frozen=True, kw_only=True)
class Served:
    name: str
    title: str
    image: str
    needs: Needs
    mount: str = ""
    """Its LMI folder on this machine as the files name it: from where they are, if it is near."""
    place: str = ""
    """That folder where it is served; empty if there is none: variables say everything."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that the plan was made with."""
    replicas: int = 2
    texts: Mapping[str, str] = field(default_factory=dict)
    claim: str = ""
    """A PersistentVolumeClaim that holds the folder, in place of a ConfigMap."""
    extras: frozenset[str] = frozenset()
    """Names in `EXTRAS`."""
    namespace: str = ""
    service_account: str = ""
    given_cache: str = ""
    """A PersistentVolumeClaim for downloads and compiled kernels."""
    remote_model: str = ""
    """A hub id or an s3:// prefix, if the server downloads the model."""
    revision: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """After `serve`: the folder, unless a variable names it."""
        return () if self.place in ("", STORE) else (self.place,)

    @property
    def full_name(self) -> str:
        """The name of its objects, with Kustomize's suffix."""
        return f"lmi-backend-{self.name}"

    @property
    def account(self) -> dict[str, str]:
        """What a pod says of its service account."""
        return {"serviceAccountName": self.service_account} if self.service_account else {}

    @property
    def cache_claim(self) -> str:
        """The claim for its downloads; empty if they go with the pod."""
        own = f"cache-{self.name}" if "cache" in self.extras else ""
        return self.given_cache or own

    @property
    def cache_size(self) -> str:
        return f"{(self.needs.storage or UNKNOWN_STORAGE) // GIB}Gi"

    @property
    def most_replicas(self) -> int:
        return max(_MOST_REPLICAS, self.replicas)
