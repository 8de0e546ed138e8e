"""TensorRT-LLM: LMI's names, old and new, for arguments of its LLM class.

Every other argument of LLM is an option under its own name.
Source: LMI's TensorRT-LLM user guide, and TensorRT-LLM 1.2.1's llm_args.
"""

from __future__ import annotations

from operator import not_
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.errors import OptionError
from lmi_backend.options.engine_spec import ArgumentSource, EngineSpec, Implementation, Sizes
from lmi_backend.options.kinds import BOOL, ITEMS, JSON, TEXT, Kind, choice, number, whole
from lmi_backend.options.option import AnyOption, Option

if TYPE_CHECKING:
    from lmi_backend.options.resolve import LmiOptions


def _finish(
    options: LmiOptions, arguments: dict[str, Any], _reasons: list[str], notes: list[str]
) -> None:
    per_channel, per_token = options[PER_CHANNEL], options[PER_TOKEN]
    if options.values.get(QUANTIZE.name) != "smoothquant":
        if per_channel or per_token:
            notes.append("smoothquant_per_… is ignored: option.quantize is not smoothquant")
    elif per_channel or per_token:
        word = f"PER_{'CHANNEL' if per_channel else 'TENSOR'}"
        word += f"_PER_{'TOKEN' if per_token else 'TENSOR'}"
        arguments["quant_config"]["quant_algo"] = f"W8A8_SQ_{word}_PLUGIN"
    backend = options.passthrough.get("backend")
    if backend is None or backend.value != "tensorrt":
        _refuse_building(options)


def _refuse_building(options: LmiOptions) -> None:
    """Refuse what is only read while an engine is built: PyTorch's LLM takes no such argument."""
    names = {row.name for row in (QUANTIZE, QUANT_FORMAT, PER_TOKEN, PER_CHANNEL, *BUILD_ROWS)}
    for name, setting in options.settings.items():
        if name in names:
            problem = (
                "is read only while a TensorRT engine is built; set option.backend=tensorrt, or "
                "leave it out and use a checkpoint that is quantised already"
            )
            raise OptionError(
                problem, option=setting.name, value=setting.shown, origin=setting.origin
            )


SPEC: Final = EngineSpec(
    name="trtllm",
    title="TensorRT-LLM",
    order=2,
    implementation=Implementation(
        name="trtllm",
        title="TensorRT-LLM",
        engine="lmi_backend.engines.trtllm.engine:TrtllmEngine",
        follower="lmi_backend.engines.trtllm.engine:TrtllmFollower",
        library="tensorrt_llm",
        source=ArgumentSource(
            "tensorrt_llm", "llmapi/llm_args.py", ("TorchLlmArgs", "TrtLlmArgs"), "version.py"
        ),
        sizes=Sizes("max_batch_size"),
        arguments={
            "option.revision": "revision",
            "option.trust_remote_code": "trust_remote_code",
            "option.dtype": "dtype",
            "option.max_rolling_batch_prefill_tokens": "max_num_tokens",
            "option.stream_interval": "stream_interval",
        },
        finish=_finish,
    ),
    rolling_batch="trtllm",
    entry_points=("djl_python.lmi_trtllm.trtllm_async_service", "djl_python.tensorrt_llm"),
    feature="trtllm",
    mpi_if_named=True,
    scopes=("adapters",),
    utilization_option="option.kv_cache_free_gpu_mem_fraction",
    length_option="option.max_seq_len",
    block_option="option.tokens_per_block",
    why_all_devices="max is the default of LMI's guide for TensorRT-LLM",
)


def _argument(name: str, kind: Kind[Any], argument: str, meaning: str, **more: Any) -> AnyOption:
    return Option(
        name=f"option.{name}",
        kind=kind,
        default=None,
        scope="trtllm",
        engine_args={"trtllm": argument},
        help=meaning,
        **more,
    )


MAX_INPUT_LEN: Final = _argument(
    "max_input_len", whole(1), "max_input_len", "Longest prompt, in tokens."
)
MAX_SEQ_LEN: Final = _argument(
    "max_seq_len",
    whole(1),
    "max_seq_len",
    "Longest prompt plus answer, in tokens. max_output_len is its older name.",
    aliases=("option.max_output_len",),
)
MAX_NUM_TOKENS: Final = _argument(
    "max_num_tokens",
    whole(1),
    "max_num_tokens",
    "Tokens one engine step may process.",
    lmi_default=16384,
)
FREE_MEMORY_FRACTION: Final = _argument(
    "kv_cache_free_gpu_mem_fraction",
    number(0, 1),
    "kv_cache_config.free_gpu_memory_fraction",
    "Share of the memory left after loading that the KV cache takes.",
    aliases=("option.free_gpu_memory_fraction",),
    lmi_default=0.95,
    env=("CUDA_MEMORY_FRACTION",),
)
TOKENS_PER_BLOCK: Final = _argument(
    "tokens_per_block",
    whole(1),
    "kv_cache_config.tokens_per_block",
    "Tokens of one KV-cache block.",
    lmi_default=128,
)
BLOCK_REUSE: Final = _argument(
    "enable_block_reuse",
    BOOL,
    "kv_cache_config.enable_block_reuse",
    "Keep KV-cache blocks of prompts that begin alike.",
    aliases=("option.enable_kv_cache_reuse",),
)
KV_MAX_TOKENS: Final = _argument(
    "max_tokens", whole(1), "kv_cache_config.max_tokens", "Tokens the KV cache holds."
)
MAX_ATTENTION_WINDOW: Final = _argument(
    "max_attention_window",
    ITEMS,
    "kv_cache_config.max_attention_window",
    "Attention window of each layer, in tokens.",
)
SINK_TOKENS: Final = _argument(
    "sink_token_length",
    whole(0),
    "kv_cache_config.sink_token_length",
    "First tokens that always stay in the attention window.",
)
HOST_CACHE: Final = _argument(
    "host_cache_size", whole(0), "kv_cache_config.host_cache_size", "Bytes of KV cache on the host."
)
ONBOARD_BLOCKS: Final = _argument(
    "onboard_blocks", BOOL, "kv_cache_config.onboard_blocks", "Bring offloaded blocks back."
)
CROSS_KV_FRACTION: Final = _argument(
    "cross_kv_cache_fraction",
    number(0, 1),
    "kv_cache_config.cross_kv_cache_fraction",
    "Share of the KV cache for cross attention.",
)
OFFLOAD_PRIORITY: Final = _argument(
    "secondary_offload_min_priority",
    whole(0, 100),
    "kv_cache_config.secondary_offload_min_priority",
    "Priority from which blocks are offloaded.",
)
EVENT_BUFFER: Final = _argument(
    "event_buffer_max_size",
    whole(0),
    "kv_cache_config.event_buffer_max_size",
    "KV-cache events kept.",
)
KV_DTYPE: Final = _argument(
    "kv_cache_dtype", TEXT, "kv_cache_config.dtype", "Type of the KV cache."
)
SCHEDULER_POLICY: Final = _argument(
    "batch_scheduler_policy",
    choice("max_utilization", "guaranteed_no_evict", "static_batch"),
    "scheduler_config.capacity_scheduler_policy",
    "Whether a request may be paused to fit more (max_utilization) or never.",
    lmi_default="max_utilization",
    convert=str.upper,
)
OVERLAP: Final = _argument(
    "enable_overlap_scheduler",
    BOOL,
    "disable_overlap_scheduler",
    "Prepare the next step while one runs.",
    aliases=("option.enable_trt_overlap",),
    convert=not_,
)
CUDA_GRAPH: Final = _argument(
    "use_cuda_graph",
    BOOL,
    "cuda_graph_config",
    "Capture CUDA graphs.",
    convert=lambda is_wanted: {} if is_wanted else None,
)
MOE_BACKEND: Final = _argument(
    "moe_backend", TEXT, "moe_config.backend", "Kernels of mixture-of-experts layers."
)
MAX_SEQUENCES: Final = Option(
    name="option.max_num_sequences",
    kind=whole(1),
    default=0,
    scope="trtllm",
    aliases=("option.max_batch_size",),
    plan_field="max_running",
    help="Older name of option.max_rolling_batch_size.",
)
MAX_DRAFT_LEN: Final = _argument(
    "max_draft_len", whole(0), "speculative_config.max_draft_len", "Tokens drafted in a step."
)
PERF_KNOBS: Final = _argument(
    "extended_runtime_perf_knob_config",
    JSON,
    "extended_runtime_perf_knob_config",
    "Run-time performance settings of the TensorRT backend.",
)

# What follows is read while a TensorRT engine is built (option.backend=tensorrt).

QUANTIZE: Final = _argument(
    "quantize",
    choice("smoothquant", "awq", "fp8"),
    "quant_config.quant_algo",
    "Quantisation of the engine that is built.",
    env=("HF_MODEL_QUANTIZE",),
    convert={"smoothquant": "W8A8_SQ_PER_TENSOR_PLUGIN", "awq": "W4A16_AWQ", "fp8": "FP8"}.get,
)
QUANT_FORMAT: Final = _argument(
    "q_format",
    choice("int4_awq"),
    "quant_config.quant_algo",
    "Form of AWQ weights.",
    aliases=("option.awq_format",),
    convert={"int4_awq": "W4A16_AWQ"}.get,
)
PER_TOKEN: Final = Option(
    name="option.smoothquant_per_token",
    kind=BOOL,
    default=False,
    scope="trtllm",
    plan_field="engine_arguments quant_config.quant_algo",
    help="SmoothQuant: scale each token by itself.",
)
PER_CHANNEL: Final = Option(
    name="option.smoothquant_per_channel",
    kind=BOOL,
    default=False,
    scope="trtllm",
    plan_field="engine_arguments quant_config.quant_algo",
    help="SmoothQuant: scale each channel by itself.",
)

_BUILD: tuple[tuple[str, Kind[Any], str, str], ...] = (
    ("quant_algo", TEXT, "quant_config", "Quantisation algorithm."),
    ("kv_cache_quant_algo", TEXT, "quant_config", "Quantisation of the KV cache."),
    ("group_size", whole(1), "quant_config", "Weights that share a scale."),
    ("smoothquant_val", number(0, 1), "quant_config", "SmoothQuant's alpha."),
    ("clamp_val", ITEMS, "quant_config", "Bounds of activations."),
    ("use_meta_recipe", BOOL, "quant_config", "Meta's recipe for FP8."),
    ("has_zero_point", BOOL, "quant_config", "Quantised zero is not zero."),
    ("exclude_modules", ITEMS, "quant_config", "Modules left as they are."),
    ("calib_dataset", TEXT, "calib_config", "Texts for calibration."),
    ("calib_batch_size", whole(1), "calib_config", "Texts in a batch of calibration."),
    ("calib_max_seq_length", whole(1), "calib_config", "Longest text of calibration, in tokens."),
    ("random_seed", whole(0), "calib_config", "Seed of calibration."),
    ("tokenizer_max_seq_length", whole(1), "calib_config", "Where the tokenizer cuts texts."),
    ("use_fused_mlp", BOOL, "build_config.plugin_config", "Fuse the gated MLP."),
    ("use_fp8_context_fmha", BOOL, "build_config.plugin_config", "Attention over prompts in FP8."),
)
_RENAMED: tuple[tuple[str, Kind[Any], str, str], ...] = (
    ("smoothquant_alpha", number(0, 1), "quant_config.smoothquant_val", "SmoothQuant's alpha."),
    ("awq_block_size", whole(1), "quant_config.group_size", "Weights that share a scale."),
    ("pre_quant_scales", BOOL, "quant_config.pre_quant_scale", "Scales before quantisation."),
    ("calib_size", whole(1), "calib_config.calib_batches", "Batches of calibration."),
    ("awq_calib_size", whole(1), "calib_config.calib_batches", "Batches of calibration."),
    ("calib_batches", whole(1), "calib_config.calib_batches", "Batches of calibration."),
)

BUILD_ROWS: Final = (
    *(_argument(name, kind, f"{place}.{name}", text) for name, kind, place, text in _BUILD),
    *(_argument(name, kind, path, text) for name, kind, path, text in _RENAMED),
)
