"""DeepSpeed, which LMI has retired but still documents.

It split Transformers' models between MPI ranks; Transformers does that itself now. Source: LMI's
user guide of 0.27.
"""

from __future__ import annotations

from typing import Final

from lmi_backend.options.engine_spec import EngineSpec
from lmi_backend.options.kinds import BOOL, whole
from lmi_backend.options.option import AnyOption, Option
from lmi_backend.options.table import transformers

SPEC: Final = EngineSpec(
    name="deepspeed",
    title="DeepSpeed",
    order=4,
    implementation=transformers.SPEC.implementation,
    why_implementation=(
        "LMI has retired DeepSpeed; Transformers splits a model between MPI ranks itself"
    ),
    rolling_batch="deepspeed",
    entry_points=("djl_python.deepspeed",),
    engine_word="DeepSpeed",
    why_mpi="DeepSpeed shares a model between MPI ranks",
    max_running=4,
)

MAX_TOKENS: Final[AnyOption] = Option(
    name="option.max_tokens",
    kind=whole(1),
    default=None,
    scope="deepspeed",
    engine_args={"transformers": "max_model_len"},
    help="Longest prompt plus answer, in tokens.",
)
LOW_CPU_MEM: Final[AnyOption] = Option(
    name="option.low_cpu_mem_usage",
    kind=BOOL,
    default=None,
    scope="deepspeed",
    engine_args={"transformers": "low_cpu_mem_usage"},
    help="Load without a copy in host memory.",
)
