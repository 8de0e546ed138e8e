"""Hugging Face Accelerate, LMI's oldest backend: arguments of from_pretrained.

LMI passes nothing else on; `option.kwargs` takes the rest as JSON. DeepSpeed, which LMI has retired
but still documents, split Transformers' models between MPI ranks; Transformers does that itself
now. Source: LMI's user guide of 0.27.
"""

from __future__ import annotations

from typing import Final

from lmi_backend.options.kinds import BOOL, FREE_ITEMS, JSON, TEXT, choice, whole
from lmi_backend.options.spec import NOTHING, ArgumentRows, EngineSpec, Implementation

SPEC: Final = EngineSpec(
    name="transformers",
    title="Transformers",
    order=3,
    implementation=Implementation(
        name="transformers",
        title="Transformers",
        engine="lmi_backend.engines.transformers.engine:TransformersEngine",
        follower="lmi_backend.engines.transformers.engine:TransformersFollower",
        library="transformers",
        reads_checkpoints=True,
        image="vllm",
        running="max_batch_size",
        arguments={
            "option.revision": "revision",
            "option.trust_remote_code": "trust_remote_code",
            "option.dtype": "dtype",
        },
        # The library would take most of the host's memory.
        cpu_cache=("page_size", "num_blocks"),
        # Ranks split layers only.
        pipeline_modes=frozenset({"python"}),
    ),
    rolling_batch="scheduler",
    unbatched="Hugging Face Accelerate in LMI",
    scopes=("adapters",),
)

_argument: Final = ArgumentRows("transformers", "transformers")

DEVICE_MAP: Final = _argument(
    "device_map",
    TEXT,
    "Where layers go: auto, balanced, balanced_low_0, sequential, cpu, or JSON.",
)
QUANTIZE: Final = _argument(
    "quantize",
    choice("bitsandbytes4", "bitsandbytes8"),
    "Quantise while loading.",
    env=("HF_MODEL_QUANTIZE",),
)
LOAD_IN_8BIT: Final = _argument(
    "load_in_8bit",
    BOOL,
    "Older name of option.quantize=bitsandbytes8.",
    to="quantize",
    convert=lambda is_wanted: "bitsandbytes8" if is_wanted else NOTHING,
)
LOAD_IN_4BIT: Final = _argument(
    "load_in_4bit",
    BOOL,
    "Older name of option.quantize=bitsandbytes4.",
    to="quantize",
    convert=lambda is_wanted: "bitsandbytes4" if is_wanted else NOTHING,
)
LOW_CPU_MEM: Final = _argument(
    "low_cpu_mem_usage",
    BOOL,
    "Load without a second copy in host memory.",
    default=True,
    lmi_default=True,
)
FLASH_ATTENTION: Final = _argument(
    "disable_flash_attn",
    BOOL,
    "false means FlashAttention 2.",
    default=True,
    to="attn_implementation",
    convert=lambda is_off: NOTHING if is_off else "flash_attention_2",
)
STOP_SEQUENCE: Final = _argument(
    "stop_sequence", FREE_ITEMS, "Strings that end every answer.", to="stop"
)
DECODING_STRATEGY: Final = _argument(
    "decoding_strategy",
    choice("greedy", "sample"),
    "Whether answers are sampled when the request does not say.",
    default="greedy",
    to="do_sample",
    convert=lambda word: word == "sample",
)
KWARGS: Final = _argument("kwargs", JSON, "Further arguments of from_pretrained, as JSON.")


DEEPSPEED: Final = EngineSpec(
    name="deepspeed",
    title="DeepSpeed",
    order=4,
    implementation=SPEC.implementation,
    why_implementation=(
        "LMI has retired DeepSpeed; Transformers splits a model between MPI ranks itself"
    ),
    rolling_batch="deepspeed",
    entry_points=("djl_python.deepspeed",),
    engine_word="DeepSpeed",
    why_mpi="DeepSpeed shares a model between MPI ranks",
    max_running=4,
)

_of_deepspeed: Final = ArgumentRows("deepspeed", "transformers")

MAX_TOKENS: Final = _of_deepspeed(
    "max_tokens", whole(1), "Longest prompt plus answer, in tokens.", to="max_model_len"
)
DEEPSPEED_LOW_CPU_MEM: Final = _of_deepspeed(
    "low_cpu_mem_usage", BOOL, "Load without a copy in host memory."
)
