"""Keys of LMI's model server that have a meaning under Triton."""

from __future__ import annotations

from typing import Final

from lmi_backend.options.kinds import TEXT, whole
from lmi_backend.options.option import Option

JOB_QUEUE_SIZE: Final = Option(
    name="job_queue_size",
    kind=whole(1),
    default=1000,
    scope="server",
    env=("MAX_CONCURRENT_REQUESTS",),
    help="Requests that may wait per model; one more is refused as UNAVAILABLE.",
)
BATCH_SIZE: Final = Option(
    name="batch_size",
    kind=whole(1, 1),
    default=1,
    scope="server",
    aliases=("max_dynamic_batch_size", "option.batch_size"),
    help="Static request batching. Only 1: the engine batches continuously.",
)
MIN_WORKERS: Final = Option(
    name="minWorkers",
    kind=whole(1),
    default=0,
    scope="server",
    aliases=("gpu.minWorkers", "cpu.minWorkers"),
    prefixed_env="SERVING_MIN_WORKERS",
    overriding_env=("SAGEMAKER_NUM_MODEL_WORKERS",),
    help="Workers (replicas of the model). Default: as many as the devices allow, 1 on CPU.",
)
MAX_WORKERS: Final = Option(
    name="maxWorkers",
    kind=whole(1),
    default=0,
    scope="server",
    aliases=("gpu.maxWorkers", "cpu.maxWorkers"),
    prefixed_env="SERVING_MAX_WORKERS",
    overriding_env=("SAGEMAKER_NUM_MODEL_WORKERS",),
    help="Upper bound of the number of workers.",
)
LOAD_ON_DEVICES: Final = Option(
    name="load_on_devices",
    kind=TEXT,
    default="*",
    scope="server",
    help="Devices to use: * for all visible, or indices of visible ones joined by ;.",
)
RETRY_THRESHOLD: Final = Option(
    name="retry_threshold",
    kind=whole(0),
    default=10,
    scope="server",
    help="Restarts of a dead worker before it is given up.",
)
