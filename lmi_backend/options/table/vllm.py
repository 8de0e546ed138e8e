"""Options LMI names differently from vLLM, or that the plan reads too.

Every other argument of vLLM is an option under its own name, read by vLLM's own parser.
"""

from __future__ import annotations

from operator import not_
from typing import Final

from lmi_backend.names import DEFAULT_MODEL_NAME
from lmi_backend.options.kinds import (
    BOOL,
    ITEMS,
    JSON,
    LIMITS,
    TEXT,
    float_type,
    number,
    text_but,
    tokens,
    whole,
)
from lmi_backend.options.media_hosts import MEDIA_HOSTS
from lmi_backend.options.option import NOTHING, Option

QUANTIZE: Final = Option(
    name="option.quantize",
    kind=text_but(squeezellm="vLLM no longer has it; use awq, gptq or fp8"),
    default="",
    scope="vllm",
    aliases=("option.quantization",),
    env=("HF_MODEL_QUANTIZE",),
    engine_args={"vllm": "quantization"},
    convert=lambda method: "bitsandbytes" if method.startswith("bitsandbytes") else method,
    help="Quantisation method. Leave it out for models that are quantised already.",
)
DTYPE: Final = Option(
    name="option.dtype",
    kind=float_type(),
    default="auto",
    scope="vllm",
    aliases=("option.data_type",),
    engine_args={"vllm": "dtype"},
    help="Type of weights and activations; vLLM takes no int8.",
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
    kind=tokens(),
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
KV_CACHE_DTYPE: Final = Option(
    name="option.kv_cache_dtype",
    kind=TEXT,
    default="auto",
    scope="vllm",
    engine_args={"vllm": "kv_cache_dtype"},
    help="Type of the KV cache; fp8 halves it.",
)
KV_CACHE_MEMORY: Final = Option(
    name="option.kv_cache_memory_bytes",
    kind=tokens(),
    default=0,
    scope="vllm",
    engine_args={"vllm": "kv_cache_memory_bytes"},
    help="Bytes of the KV cache on each device, instead of what is left over.",
)
BLOCK_SIZE: Final = Option(
    name="option.block_size",
    kind=whole(1),
    default=0,
    scope="vllm",
    engine_args={"vllm": "block_size"},
    help="Tokens of one KV-cache block.",
)
LOAD_FORMAT: Final = Option(
    name="option.load_format",
    kind=text_but(sagemaker_fast_model_loader="it works on SageMaker only; leave it out"),
    default="auto",
    scope="vllm",
    engine_args={"vllm": "load_format"},
    help="Form of the weights.",
)
DATA_PARALLEL_SIZE: Final = Option(
    name="option.data_parallel_size",
    kind=whole(1),
    default=1,
    scope="vllm",
    engine_args={"vllm": "data_parallel_size"},
    help="Copies of the model inside one worker, each on devices of its own.",
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
    inverse_env=("ENABLE_CUDA_GRAPHS",),
    engine_args={"vllm": "enforce_eager"},
    help="Do not capture CUDA graphs.",
)
SERVED_MODEL_NAME: Final = Option(
    name="option.served_model_name",
    kind=ITEMS,
    default=[DEFAULT_MODEL_NAME],
    scope="vllm",
    engine_args={"vllm": "served_model_name"},
    help="Names of the model in OpenAI bodies.",
)
LIMIT_MM_PER_PROMPT: Final = Option(
    name="option.limit_mm_per_prompt",
    kind=LIMITS,
    default={},
    scope="vllm",
    engine_args={"vllm": "limit_mm_per_prompt"},
    help="Images, videos or sounds one prompt may hold.",
)
ALLOWED_MEDIA_DOMAINS: Final = Option(
    name="option.allowed_media_domains",
    kind=MEDIA_HOSTS,
    default=[],
    scope="vllm",
    engine_args={"vllm": "allowed_media_domains"},
    help="Hosts that images, videos and sounds in bodies may be fetched from, each by its exact"
    " name, or * for any; without it only data: URLs are taken. Private addresses are never"
    " connected to, unless one, or its network, is listed too: images.intranet,10.2.0.0/16."
    " Redirects keep to the same list, and proxies are not used.",
)
LOG_REQUESTS: Final = Option(
    name="option.disable_log_requests",
    kind=BOOL,
    default=True,
    scope="vllm",
    engine_args={"vllm": "enable_log_requests"},
    convert=not_,
    help="Older name of the opposite of option.enable_log_requests.",
)
DISTRIBUTED_EXECUTOR: Final = Option(
    name="option.worker_use_ray",
    kind=BOOL,
    default=False,
    scope="vllm",
    engine_args={"vllm": "distributed_executor_backend"},
    convert=lambda is_wanted: "ray" if is_wanted else NOTHING,
    help="Older name of option.distributed_executor_backend=ray.",
)
CUDA_GRAPH_SIZES: Final = Option(
    name="option.cuda_graph_sizes",
    kind=ITEMS,
    default=[],
    scope="vllm",
    engine_args={"vllm": "cudagraph_capture_sizes"},
    help="Older name of option.cudagraph_capture_sizes.",
)
POOLER_CONFIG: Final = Option(
    name="option.override_pooler_config",
    kind=JSON,
    default={},
    scope="vllm",
    engine_args={"vllm": "pooler_config"},
    help="Older name of option.pooler_config.",
)
GUIDED_BACKEND: Final = Option(
    name="option.guided_decoding_backend",
    kind=TEXT,
    default="",
    scope="vllm",
    engine_args={"vllm": "structured_outputs_config.backend"},
    help="Library that enforces a structure of the answer.",
)
GUIDED_WHITESPACE: Final = Option(
    name="option.guided_decoding_disable_any_whitespace",
    kind=BOOL,
    default=False,
    scope="vllm",
    engine_args={"vllm": "structured_outputs_config.disable_any_whitespace"},
    help="Write structured answers without blanks.",
)
GUIDED_PROPERTIES: Final = Option(
    name="option.guided_decoding_disable_additional_properties",
    kind=BOOL,
    default=False,
    scope="vllm",
    engine_args={"vllm": "structured_outputs_config.disable_additional_properties"},
    help="Allow only the properties a JSON schema names.",
)
LMCACHE_FILE: Final = Option(
    name="option.lmcache_config_file",
    kind=TEXT,
    default="",
    scope="lmcache",
    plan_field="environment LMCACHE_CONFIG_FILE",
    help="LMCache's own configuration, relative to the model.",
)
LORA_DTYPE: Final = Option(
    name="option.lora_dtype",
    kind=float_type(),
    default="auto",
    scope="adapters",
    engine_args={"vllm": "lora_dtype"},
    help="Type of LoRA weights.",
)
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
FULLY_SHARDED_LORAS: Final = Option(
    name="option.fully_sharded_loras",
    kind=BOOL,
    default=False,
    scope="adapters",
    engine_args={"vllm": "fully_sharded_loras"},
    help="Split all LoRA arithmetic over the tensor parallel devices.",
)
ADAPTER_ROOTS: Final = Option(
    name="option.adapter_roots",
    kind=TEXT,
    default="",
    scope="adapters",
    plan_field="adapter_roots",
    help="Folders, separated by commas, from which adapters may be loaded while serving, beside "
    "the model's own.",
)
ADAPTERS: Final = Option(
    name="option.adapters",
    kind=TEXT,
    default="adapters",
    scope="adapters",
    plan_field="adapters",
    help="Folder, relative to the model, whose sub-folders are adapters.",
)
