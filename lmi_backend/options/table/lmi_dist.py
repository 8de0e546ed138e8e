"""Where LMI-Dist, which was vLLM started by MPI, documents defaults that vLLM has changed."""

from __future__ import annotations

from typing import Final

from lmi_backend.options.kinds import BOOL, number
from lmi_backend.options.option import Option

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
