"""Where LMI-Dist, which was vLLM started by MPI, documents defaults that vLLM has changed."""

from __future__ import annotations

from typing import Final

from lmi_backend.options.engine_spec import EngineSpec
from lmi_backend.options.kinds import BOOL, number
from lmi_backend.options.option import Option
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

GPU_MEMORY_UTILIZATION: Final = Option(
    name="option.gpu_memory_utilization",
    kind=number(0, 1),
    default=0.0,
    lmi_default=0.9,
    scope="lmi-dist",
    env=("CUDA_MEMORY_FRACTION",),
    engine_args={"vllm": "gpu_memory_utilization"},
    help="Share of a device's memory vLLM may take.",
)
ENABLE_PREFIX_CACHING: Final = Option(
    name="option.enable_prefix_caching",
    kind=BOOL,
    default=False,
    lmi_default=False,
    scope="lmi-dist",
    engine_args={"vllm": "enable_prefix_caching"},
    help="Keep KV-cache blocks of prompts that begin alike.",
)
