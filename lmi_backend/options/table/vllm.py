"""Options LMI names differently from vLLM, or checks itself.

Every other `option.*` key is handed to vLLM under its own name and read by vLLM's own parser.
"""

from __future__ import annotations

from typing import Final

from lmi_backend.options.kinds import BOOL, JSON, TEXT, number, whole
from lmi_backend.options.option import Option

QUANTIZE: Final = Option(
    name="option.quantize",
    kind=TEXT,
    default="",
    scope="vllm",
    aliases=("option.quantization",),
    env=("HF_MODEL_QUANTIZE",),
    engine_args={"vllm": "quantization"},
    help="Quantisation method. Leave it out for models that are quantised already.",
)
CPU_OFFLOAD: Final = Option(
    name="option.cpu_offload_gb_per_gpu",
    kind=number(0),
    default=0.0,
    scope="vllm",
    aliases=("option.cpu_offload_gb",),
    engine_args={"vllm": "cpu_offload_gb"},
    help="GiB of weights kept on the host, per device.",
)
MAX_MODEL_LEN: Final = Option(
    name="option.max_model_len",
    kind=whole(1),
    default=0,
    scope="vllm",
    engine_args={"vllm": "max_model_len"},
    help="Longest prompt plus answer, in tokens.",
)
GPU_MEMORY_UTILIZATION: Final = Option(
    name="option.gpu_memory_utilization",
    kind=number(0, 1),
    default=0.0,
    scope="vllm",
    env=("CUDA_MEMORY_FRACTION",),
    engine_args={"vllm": "gpu_memory_utilization"},
    help="Share of a device's memory vLLM may take.",
)
MAX_LOGPROBS: Final = Option(
    name="option.max_logprobs",
    kind=whole(-1),
    default=20,
    scope="vllm",
    engine_args={"vllm": "max_logprobs"},
    help="Largest number of log probabilities a request may ask per token.",
)
ENFORCE_EAGER: Final = Option(
    name="option.enforce_eager",
    kind=BOOL,
    default=False,
    scope="vllm",
    engine_args={"vllm": "enforce_eager"},
    help="Do not capture CUDA graphs.",
)
SERVED_MODEL_NAME: Final = Option(
    name="option.served_model_name",
    kind=TEXT,
    default="lmi",
    scope="vllm",
    engine_args={"vllm": "served_model_name"},
    help="Name of the model in OpenAI bodies.",
)
SPECULATIVE_CONFIG: Final = Option(
    name="option.speculative_config",
    kind=JSON,
    default={},
    scope="speculative",
    engine_args={"vllm": "speculative_config"},
    help="Speculative decoding, as vLLM's JSON object.",
)
ENABLE_LORA: Final = Option(
    name="option.enable_lora",
    kind=BOOL,
    default=False,
    scope="adapters",
    engine_args={"vllm": "enable_lora"},
    help="Serve LoRA adapters from the model's adapters/ folder.",
)
MAX_LORAS: Final = Option(
    name="option.max_loras",
    kind=whole(1),
    default=4,
    scope="adapters",
    engine_args={"vllm": "max_loras"},
    help="Adapters one engine step may mix.",
)
MAX_LORA_RANK: Final = Option(
    name="option.max_lora_rank",
    kind=whole(1),
    default=16,
    scope="adapters",
    engine_args={"vllm": "max_lora_rank"},
    help="Largest rank of an adapter.",
)
MAX_CPU_LORAS: Final = Option(
    name="option.max_cpu_loras",
    kind=whole(1),
    default=0,
    scope="adapters",
    engine_args={"vllm": "max_cpu_loras"},
    help="Adapters cached on the host.",
)
FULLY_SHARDED_LORAS: Final = Option(
    name="option.fully_sharded_loras",
    kind=BOOL,
    default=False,
    scope="adapters",
    engine_args={"vllm": "fully_sharded_loras"},
    help="Split all LoRA arithmetic over the tensor parallel devices.",
)
ADAPTERS: Final = Option(
    name="option.adapters",
    kind=TEXT,
    default="adapters",
    scope="adapters",
    help="Folder, relative to the model, whose sub-folders are adapters.",
)
