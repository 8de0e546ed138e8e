"""DeepSpeed, which LMI has retired but still documents.

It split Transformers' models between MPI ranks; Transformers does that itself now. Source: LMI's
user guide of 0.27.
"""

from __future__ import annotations

from typing import Final

from lmi_backend.options.engine_spec import EngineSpec
from lmi_backend.options.kinds import BOOL, whole
from lmi_backend.options.option import ArgumentRows
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

_argument: Final = ArgumentRows("deepspeed", "transformers")

MAX_TOKENS: Final = _argument(
    "max_tokens", whole(1), "Longest prompt plus answer, in tokens.", to="max_model_len"
)
LOW_CPU_MEM: Final = _argument("low_cpu_mem_usage", BOOL, "Load without a copy in host memory.")
