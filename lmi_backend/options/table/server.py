"""Keys of LMI's model server that have a meaning under Triton."""

from __future__ import annotations

from typing import Final

from lmi_backend.options.kinds import BOOL, MOST_DEVICES, TEXT, WEIGHTS, whole
from lmi_backend.options.spec import Option

JOB_QUEUE_SIZE: Final = Option(
    name="job_queue_size",
    kind=whole(1),
    default=1000,
    scope="server",
    env=("MAX_CONCURRENT_REQUESTS",),
    plan_field="queue_size",
    help="Requests that may wait per model. One more is refused as UNAVAILABLE, or replaces the "
    "latest one of the tenant that has the most waiting.",
)
TENANT_WEIGHTS: Final = Option(
    name="option.tenant_weights",
    kind=WEIGHTS,
    scope="server",
    plan_field="tenant_weights",
    help="Share of the tokens that a tenant gets where more requests wait than run; 1 for any "
    "other. A request names its tenant (parameter tenant, or header x-tenant-id of a whole body) "
    "and is believed: let a gateway set the name. Those without one are one tenant.",
)
TENANT_FROM_USER: Final = Option(
    name="option.tenant_from_user",
    kind=BOOL,
    scope="server",
    plan_field="tenant_from_user",
    help="Whether a body's safety_identifier or user is its tenant, where neither an API key nor a "
    "gateway names one.",
)
TTFT_MS: Final = Option(
    name="option.ttft_ms",
    kind=whole(0),
    scope="server",
    plan_field="ttft_ms",
    help="Milliseconds in which each answer must begin. A request that cannot is refused at once, "
    "as UNAVAILABLE, with the time to wait. A request may name its own (docs/scheduling.md). 0: "
    "any time.",
)
TPOT_MS: Final = Option(
    name="option.tpot_ms",
    kind=whole(0),
    scope="server",
    plan_field="tpot_ms",
    help="Milliseconds between tokens, in the mean, that each answer must keep. A request for "
    "which workers are too slow is refused at once, as UNAVAILABLE. 0: any time.",
)
CONCURRENCY_THRESHOLD: Final = Option(
    name="option.concurrency_threshold",
    kind=whole(0, 1024),
    default=8,
    scope="server",
    plan_field="concurrency_threshold",
    help="Of several workers, the one that has most of a prompt cached gets the request, unless it "
    "has clearly more to do. It does not if it has so many more answers to make than another. 0: "
    "the worker with the fewest answers to make gets it.",
)
BATCH_SIZE: Final = Option(
    name="batch_size",
    kind=whole(1),
    default=1,
    scope="server",
    aliases=("max_dynamic_batch_size", "option.batch_size"),
    plan_field="max_running",
    help="LMI's static batch. Above 1 it bounds what runs at once: batching is continuous here.",
)
MAX_IDLE_TIME: Final = Option(
    name="max_idle_time",
    kind=whole(1),
    default=60,
    scope="server",
    # As LMI's guide of 0.26 had it.
    aliases=("option.max_idle_time",),
    plan_field="max_idle_time",
    help="Seconds without a request after which a worker above minWorkers is stopped.",
)
SHUTDOWN_TIMEOUT: Final = Option(
    name="option.shutdown_timeout",
    kind=whole(0),
    default=30,
    scope="server",
    plan_field="drain_seconds",
    help="Seconds that running requests have to finish when the model or the server stops. "
    "serve --drain-timeout wins; of several models the longest counts there.",
)
LOAD_ON_DEVICES: Final = Option(
    name="load_on_devices",
    kind=TEXT,
    default="*",
    scope="server",
    plan_field="device_groups",
    help="The first device of each worker, as indices of visible ones joined by ;. A worker has as "
    "many devices from there as its degrees need. * for as many workers as fit.",
)
RETRY_THRESHOLD: Final = Option(
    name="retry_threshold",
    kind=whole(0),
    default=10,
    scope="server",
    plan_field="restart_limit",
    help="Restarts of a crashed worker before it is abandoned.",
)


def _workers(name: str, meaning: str, device: str = "") -> Option[int]:
    """Return a bound of the number of workers, for all kinds of device or one."""
    is_first = not device
    return Option(
        name=f"{device}.{name}" if device else name,
        kind=whole(1, MOST_DEVICES),
        default=0,
        scope="server",
        prefixed_env=f"SERVING_{name[:3].upper()}_WORKERS" if is_first else "",
        overriding_env=("SAGEMAKER_NUM_MODEL_WORKERS",) if is_first else (),
        plan_field="min_workers" if name == "minWorkers" else "device_groups",
        device="nc" if device == "nc" else None,
        help=meaning if is_first else f"{name} where the devices are {device}; it wins there.",
    )


_LEAST = (
    "Workers (replicas of the model) that always run, on all devices together. Default: as many as "
    "the devices allow, 1 on CPU; so many run also where maxWorkers is not set, and in MPI mode."
)
_MOST = (
    "Upper bound of the number of workers. Above minWorkers they are started and stopped by load "
    "in Python mode: one more when more than 2 x batch_size requests wait."
)

MIN_WORKERS: Final = _workers("minWorkers", _LEAST)
GPU_MIN_WORKERS: Final = _workers("minWorkers", _LEAST, "gpu")
CPU_MIN_WORKERS: Final = _workers("minWorkers", _LEAST, "cpu")
NC_MIN_WORKERS: Final = _workers("minWorkers", _LEAST, "nc")
MAX_WORKERS: Final = _workers("maxWorkers", _MOST)
GPU_MAX_WORKERS: Final = _workers("maxWorkers", _MOST, "gpu")
CPU_MAX_WORKERS: Final = _workers("maxWorkers", _MOST, "cpu")
NC_MAX_WORKERS: Final = _workers("maxWorkers", _MOST, "nc")


def _memory(name: str, default: int, meaning: str) -> Option[int]:
    return Option(
        name=name,
        kind=whole(0),
        default=default,
        scope="server",
        plan_field="memory check",
        help=f"{meaning}, in MiB.",
    )


REQUIRED_MEMORY: Final = _memory(
    "required_memory_mb", 0, "Host memory that must be available when the model is loaded"
)
RESERVED_MEMORY: Final = _memory("reserved_memory_mb", 500, "Host memory that must stay free")
GPU_REQUIRED_MEMORY: Final = _memory(
    "gpu.required_memory_mb", 0, "Memory each GPU must have for the model"
)
GPU_RESERVED_MEMORY: Final = _memory("gpu.reserved_memory_mb", 0, "Memory of a GPU to keep free")
