"""Where LMI-Dist, which was vLLM started by MPI, documents defaults that vLLM has changed."""

from __future__ import annotations

from typing import Final

from lmi_backend.options.engine_spec import EngineSpec
from lmi_backend.options.kinds import BOOL, number
from lmi_backend.options.option import ArgumentRows
from lmi_backend.options.table import vllm

SPEC: Final = EngineSpec(
    name="lmi-dist",
    title="LMI-Dist",
    order=1,
    implementation=vllm.SPEC.implementation,
    why_implementation="LMI-Dist was vLLM started by MPI",
    rolling_batch="lmi-dist",
    mpi_if_named=True,
    scopes=("vllm", *vllm.SPEC.scopes),
    utilization_option="option.gpu_memory_utilization",
)

_argument: Final = ArgumentRows("lmi-dist", "vllm")

GPU_MEMORY_UTILIZATION: Final = _argument(
    "gpu_memory_utilization",
    number(0, 1),
    "Share of a device's memory vLLM may take.",
    default=0.0,
    lmi_default=0.9,
    env=("CUDA_MEMORY_FRACTION",),
)
ENABLE_PREFIX_CACHING: Final = _argument(
    "enable_prefix_caching",
    BOOL,
    "Keep KV-cache blocks of prompts that begin alike.",
    default=False,
    lmi_default=False,
)
