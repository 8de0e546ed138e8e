"""Options LMI names differently from vLLM, or that the plan reads too.

Every other argument of vLLM is an option under its own name, read by vLLM's own parser.
"""

from __future__ import annotations

from operator import not_
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.names import DEFAULT_MODEL_NAME
from lmi_backend.options.engine_spec import ArgumentSource, EngineSpec, Implementation, Sizes
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
from lmi_backend.options.option import NOTHING, Option, rows_in
from lmi_backend.options.table import chat, common, lora, speculative

if TYPE_CHECKING:
    from lmi_backend.options.resolve import LmiOptions

_ACCEPTANCE: Final = "per_request_spec_decode_metrics"
"""vLLM refuses it where nothing is drafted."""
_DRAFTED_TOKENS: Final = 5
"""Tokens to draft where nobody says: what LMI's guide documents."""


def _finish(
    options: LmiOptions, arguments: dict[str, Any], reasons: list[str], notes: list[str]
) -> None:
    if options[common.TASK] in ("generate", "text-generation"):
        arguments["runner"] = "generate"
    if options[lora.ENABLE_LORA]:
        arguments.setdefault("max_loras", lora.MAX_LORAS.default)
    draft = arguments.get("speculative_config")
    if not draft:
        if arguments.pop(_ACCEPTANCE, None) is not None:
            notes.append("record_acceptance_rate is ignored: there is no speculative decoding")
        return
    if "prompt_lookup_max" in draft or draft.get("model") == "[ngram]":
        draft.setdefault("method", "ngram")
        draft.pop("model", None)
    if "num_speculative_tokens" not in draft and not options.is_set(speculative.SPECULATIVE_CONFIG):
        draft["num_speculative_tokens"] = _DRAFTED_TOKENS
        reasons.append(f"{_DRAFTED_TOKENS} drafted tokens: the default of LMI's guide")


SPEC: Final = EngineSpec(
    name="vllm",
    title="vLLM",
    order=0,
    implementation=Implementation(
        name="vllm",
        title="vLLM",
        engine="lmi_backend.engines.vllm.engine:VllmEngine",
        follower="lmi_backend.engines.vllm.follower:VllmFollower",
        library="vllm",
        source=ArgumentSource("vllm", "engine/arg_utils.py", ("AsyncEngineArgs",), "_version.py"),
        sizes=Sizes("max_num_seqs"),
        arguments={
            "option.revision": "revision",
            "option.trust_remote_code": "trust_remote_code",
            "option.dtype": "dtype",
            "option.task": "runner",
            "option.max_rolling_batch_prefill_tokens": "max_num_batched_tokens",
            "option.stream_interval": "stream_interval",
        },
        finish=_finish,
        pools=True,
        # LMI-Dist served these; vLLM itself never has.
        refused_architectures=frozenset(
            f"{name}ForConditionalGeneration" for name in ("T5", "MT5", "UMT5")
        ),
        ray_argument="distributed_executor_backend",
        cpu_pipeline="vLLM 0.32 dies with the first request",
    ),
    rolling_batch="vllm",
    entry_points=("djl_python.lmi_vllm.vllm_async_service",),
    feature="vllm",
    scopes=("adapters", "speculative", "chat", "embedding", "lmcache"),
    # vLLM 0.32's default.
    utilization=0.92,
    utilization_option="option.gpu_memory_utilization",
)

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

FURTHER: Final = (*rows_in(lora), *rows_in(chat), *rows_in(speculative))
