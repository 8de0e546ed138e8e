"""LoRA adapters, for the engines that serve them."""

from __future__ import annotations

from typing import Final

from lmi_backend.options.kinds import ADAPTERS as ADAPTER_LIST
from lmi_backend.options.kinds import BOOL, TEXT, float_type, whole
from lmi_backend.options.option import ArgumentRows, Option

_argument: Final = ArgumentRows("adapters", "vllm")

LORA_DTYPE: Final = _argument("lora_dtype", float_type(), "Type of LoRA weights.", default="auto")
ENABLE_LORA: Final = Option(
    name="option.enable_lora",
    kind=BOOL,
    default=False,
    scope="adapters",
    engine_args={"vllm": "enable_lora", "trtllm": "enable_lora"},
    plan_field="adapters",
    help="Serve LoRA adapters from the model's adapters/ folder.",
)
MAX_LORAS: Final = Option(
    name="option.max_loras",
    kind=whole(1),
    default=4,
    scope="adapters",
    engine_args={"vllm": "max_loras", "trtllm": "lora_config.max_loras"},
    help="Adapters one engine step may mix.",
)
MAX_LORA_RANK: Final = Option(
    name="option.max_lora_rank",
    kind=whole(1),
    default=16,
    scope="adapters",
    engine_args={"vllm": "max_lora_rank", "trtllm": "lora_config.max_lora_rank"},
    help="Largest rank of an adapter.",
)
MAX_CPU_LORAS: Final = Option(
    name="option.max_cpu_loras",
    kind=whole(1),
    default=0,
    scope="adapters",
    engine_args={"vllm": "max_cpu_loras", "trtllm": "lora_config.max_cpu_loras"},
    help="Adapters cached on the host.",
)
FULLY_SHARDED_LORAS: Final = _argument(
    "fully_sharded_loras",
    BOOL,
    "Split all LoRA arithmetic over the tensor parallel devices.",
    default=False,
)
ADAPTER_ROOTS: Final = Option(
    name="option.adapter_roots",
    kind=TEXT,
    default="",
    scope="adapters",
    plan_field="adapter_roots",
    help="Folders, separated by commas, from which adapters may be loaded while serving, in "
    "addition to the folder of the model.",
)
ADAPTERS: Final = Option(
    name="option.adapters",
    kind=TEXT,
    default="adapters",
    scope="adapters",
    plan_field="adapters",
    help="Folder, relative to the model, whose sub-folders are adapters.",
)
LORA_MODULES: Final = Option(
    name="option.lora_modules",
    kind=ADAPTER_LIST,
    default={},
    scope="adapters",
    plan_field="adapters",
    help="Further adapters by name: a folder, relative to the model, or where vLLM runs a hub id. "
    "Needs option.enable_lora.",
)
