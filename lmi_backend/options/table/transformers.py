"""Hugging Face Accelerate, LMI's oldest backend: arguments of from_pretrained.

LMI passes nothing else on; `option.kwargs` takes the rest as JSON.
"""

from __future__ import annotations

from typing import Final

from lmi_backend.options.engine_spec import EngineSpec, Implementation, Sizes
from lmi_backend.options.kinds import BOOL, ITEMS, JSON, TEXT, choice
from lmi_backend.options.option import NOTHING, Option

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
        sizes=Sizes("max_batch_size"),
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

DEVICE_MAP: Final = Option(
    name="option.device_map",
    kind=TEXT,
    default="",
    scope="transformers",
    engine_args={"transformers": "device_map"},
    help="Where layers go: auto, balanced, balanced_low_0, sequential, cpu, or JSON.",
)
QUANTIZE: Final = Option(
    name="option.quantize",
    kind=choice("bitsandbytes4", "bitsandbytes8"),
    default="",
    scope="transformers",
    env=("HF_MODEL_QUANTIZE",),
    engine_args={"transformers": "quantize"},
    help="Quantise while loading.",
)
LOAD_IN_8BIT: Final = Option(
    name="option.load_in_8bit",
    kind=BOOL,
    default=False,
    scope="transformers",
    engine_args={"transformers": "quantize"},
    convert=lambda is_wanted: "bitsandbytes8" if is_wanted else NOTHING,
    help="Older name of option.quantize=bitsandbytes8.",
)
LOAD_IN_4BIT: Final = Option(
    name="option.load_in_4bit",
    kind=BOOL,
    default=False,
    scope="transformers",
    engine_args={"transformers": "quantize"},
    convert=lambda is_wanted: "bitsandbytes4" if is_wanted else NOTHING,
    help="Older name of option.quantize=bitsandbytes4.",
)
LOW_CPU_MEM: Final = Option(
    name="option.low_cpu_mem_usage",
    kind=BOOL,
    default=True,
    lmi_default=True,
    scope="transformers",
    engine_args={"transformers": "low_cpu_mem_usage"},
    help="Load without a second copy in host memory.",
)
FLASH_ATTENTION: Final = Option(
    name="option.disable_flash_attn",
    kind=BOOL,
    default=True,
    scope="transformers",
    engine_args={"transformers": "attn_implementation"},
    convert=lambda is_off: NOTHING if is_off else "flash_attention_2",
    help="false asks for FlashAttention 2.",
)
STOP_SEQUENCE: Final = Option(
    name="option.stop_sequence",
    kind=ITEMS,
    default=[],
    scope="transformers",
    engine_args={"transformers": "stop"},
    help="Strings that end every answer.",
)
DECODING_STRATEGY: Final = Option(
    name="option.decoding_strategy",
    kind=choice("greedy", "sample"),
    default="greedy",
    scope="transformers",
    engine_args={"transformers": "do_sample"},
    convert=lambda word: word == "sample",
    help="Whether answers are sampled when the request does not say.",
)
KWARGS: Final = Option(
    name="option.kwargs",
    kind=JSON,
    default={},
    scope="transformers",
    engine_args={"transformers": "kwargs"},
    help="Further arguments of from_pretrained, as JSON.",
)
