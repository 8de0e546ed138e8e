"""TensorRT-LLM: LMI's names, old and new, for arguments of its LLM class.

Every other argument of LLM is an option under its own name.
Source: LMI's TensorRT-LLM user guide, and TensorRT-LLM 1.2.1's llm_args.
"""

from __future__ import annotations

from operator import not_
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.options import tensorrt_engines
from lmi_backend.options.engine_spec import ArgumentSource, EngineSpec, Implementation, Sizes
from lmi_backend.options.kinds import BOOL, ITEMS, JSON, TEXT, choice, number, whole
from lmi_backend.options.option import AnyOption, ArgumentRows, Option

if TYPE_CHECKING:
    from lmi_backend.options.engine_spec import Ignore
    from lmi_backend.options.resolve import LmiOptions
    from lmi_backend.options.versions import Planned


def _finish(
    options: LmiOptions, arguments: dict[str, Any], reasons: list[str], ignore: Ignore
) -> None:
    per_channel, per_token = options[PER_CHANNEL], options[PER_TOKEN]
    if options.values.get(QUANTIZE.name) != "smoothquant":
        for option in filter(options.is_set, (PER_CHANNEL, PER_TOKEN)):
            ignore(option.name, "option.quantize is not smoothquant")
    elif per_channel or per_token:
        word = f"PER_{'CHANNEL' if per_channel else 'TENSOR'}"
        word += f"_PER_{'TOKEN' if per_token else 'TENSOR'}"
        arguments["quant_config"]["quant_algo"] = f"W8A8_SQ_{word}_PLUGIN"
    _count_steps(options, arguments, reasons)


def _count_steps(options: LmiOptions, arguments: dict[str, Any], reasons: list[str]) -> None:
    """Let the library count its steps, without which it says nothing of its KV cache."""
    asked = options.passthrough.get("backend")
    is_torch = asked is None or asked.value == "pytorch"
    if is_torch and STEP_COUNTS not in options.passthrough:
        arguments[STEP_COUNTS] = True
        reasons.append(
            f"{STEP_COUNTS} true: the metrics of the KV cache need it; NVIDIA says that it may "
            f"cost a little (option.{STEP_COUNTS}=false)"
        )


def _judge(options: LmiOptions, model: str, release: Planned) -> list[str]:
    rows = (QUANTIZE, QUANT_FORMAT, PER_TOKEN, PER_CHANNEL, *BUILD_ROWS)
    return tensorrt_engines.judge(options, model, release, frozenset(row.name for row in rows))


STEP_COUNTS: Final = "enable_iter_perf_stats"

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
        image="trtllm",
        source=ArgumentSource("tensorrt_llm", "llmapi/llm_args.py", "version.py"),
        sizes=Sizes("max_batch_size"),
        arguments={
            "option.revision": "revision",
            "option.trust_remote_code": "trust_remote_code",
            "option.dtype": "dtype",
            "option.max_rolling_batch_prefill_tokens": "max_num_tokens",
            "option.stream_interval": "stream_interval",
        },
        finish=_finish,
        lone_rank="TensorRT-LLM starts one rank by itself",
        takes_encoder_decoders=False,
        oldest=("1.0", "its LLM takes other arguments"),
        newest_read="1.3.0rc29",
        judge=_judge,
    ),
    rolling_batch="trtllm",
    entry_points=("djl_python.lmi_trtllm.trtllm_async_service", "djl_python.tensorrt_llm"),
    feature="trtllm",
    mpi_if_named=True,
    scopes=("adapters",),
    utilization_option="option.kv_cache_free_gpu_mem_fraction",
    length_option="option.max_seq_len",
    block_option="option.tokens_per_block",
    block_size=32,
    why_all_devices="max is the default of LMI's guide for TensorRT-LLM",
)


_argument: Final = ArgumentRows("trtllm", "trtllm")
_cache: Final = ArgumentRows("trtllm", "trtllm", "kv_cache_config.")
_quantisation: Final = ArgumentRows("trtllm", "trtllm", "quant_config.")
_calibration: Final = ArgumentRows("trtllm", "trtllm", "calib_config.")
_plugin: Final = ArgumentRows("trtllm", "trtllm", "build_config.plugin_config.")

ROWS: Final[tuple[AnyOption, ...]] = (
    _argument("max_input_len", whole(1), "Longest prompt, in tokens."),
    _argument(
        "max_seq_len",
        whole(1),
        "Longest prompt plus answer, in tokens. max_output_len is its older name.",
        aliases=("option.max_output_len",),
    ),
    _argument("max_num_tokens", whole(1), "Tokens one engine step may process.", lmi_default=16384),
    _cache(
        "kv_cache_free_gpu_mem_fraction",
        number(0, 1),
        "Share of the memory left after loading that the KV cache takes.",
        to="free_gpu_memory_fraction",
        aliases=("option.free_gpu_memory_fraction",),
        env=("CUDA_MEMORY_FRACTION",),
    ),
    _cache("tokens_per_block", whole(1), "Tokens of one KV-cache block."),
    _cache(
        "enable_block_reuse",
        BOOL,
        "Keep KV-cache blocks of prompts that begin alike.",
        aliases=("option.enable_kv_cache_reuse",),
    ),
    _cache("max_tokens", whole(1), "Tokens the KV cache holds."),
    _cache("max_attention_window", ITEMS, "Attention window of each layer, in tokens."),
    _cache("sink_token_length", whole(0), "First tokens that always stay in the attention window."),
    _cache("host_cache_size", whole(0), "Bytes of KV cache on the host."),
    _cache("onboard_blocks", BOOL, "Bring offloaded blocks back."),
    _cache("cross_kv_cache_fraction", number(0, 1), "Share of the KV cache for cross attention."),
    _cache(
        "secondary_offload_min_priority", whole(0, 100), "Priority from which blocks are offloaded."
    ),
    _cache("event_buffer_max_size", whole(0), "KV-cache events kept."),
    _cache("kv_cache_dtype", TEXT, "Type of the KV cache.", to="dtype"),
    _argument(
        "batch_scheduler_policy",
        choice("max_utilization", "guaranteed_no_evict", "static_batch"),
        "Whether a request may be paused to fit more (max_utilization) or never.",
        to="scheduler_config.capacity_scheduler_policy",
        lmi_default="max_utilization",
        convert=str.upper,
    ),
    _argument(
        "enable_overlap_scheduler",
        BOOL,
        "Prepare the next step while one runs.",
        to="disable_overlap_scheduler",
        aliases=("option.enable_trt_overlap",),
        convert=not_,
    ),
    _argument(
        "use_cuda_graph",
        BOOL,
        "Capture CUDA graphs.",
        to="cuda_graph_config",
        convert=lambda is_wanted: {} if is_wanted else None,
    ),
    _argument(
        "moe_backend", TEXT, "Kernels of mixture-of-experts layers.", to="moe_config.backend"
    ),
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
FURTHER_ROWS: Final[tuple[AnyOption, ...]] = (
    _argument(
        "max_draft_len",
        whole(0),
        "Tokens drafted in a step.",
        to="speculative_config.max_draft_len",
    ),
    _argument(
        "extended_runtime_perf_knob_config",
        JSON,
        "Run-time performance settings of the TensorRT backend.",
    ),
)

# What follows is read while a TensorRT engine is built (option.backend=tensorrt).

QUANTIZE: Final[AnyOption] = _quantisation(
    "quantize",
    choice("smoothquant", "awq", "fp8"),
    "Quantisation of the engine that is built.",
    to="quant_algo",
    env=("HF_MODEL_QUANTIZE",),
    convert={"smoothquant": "W8A8_SQ_PER_TENSOR_PLUGIN", "awq": "W4A16_AWQ", "fp8": "FP8"}.get,
)
QUANT_FORMAT: Final[AnyOption] = _quantisation(
    "q_format",
    choice("int4_awq"),
    "Format of AWQ weights.",
    to="quant_algo",
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

BUILD_ROWS: Final[tuple[AnyOption, ...]] = (
    _quantisation("quant_algo", TEXT, "Quantisation algorithm."),
    _quantisation("kv_cache_quant_algo", TEXT, "Quantisation of the KV cache."),
    _quantisation("group_size", whole(1), "Weights that share a scale."),
    _quantisation("smoothquant_val", number(0, 1), "SmoothQuant's alpha."),
    _quantisation("clamp_val", ITEMS, "Bounds of activations."),
    _quantisation("use_meta_recipe", BOOL, "Meta's recipe for FP8."),
    _quantisation("has_zero_point", BOOL, "Quantised zero is not zero."),
    _quantisation("exclude_modules", ITEMS, "Modules left as they are."),
    _calibration("calib_dataset", TEXT, "Texts for calibration."),
    _calibration("calib_batch_size", whole(1), "Texts in a batch of calibration."),
    _calibration("calib_max_seq_length", whole(1), "Longest text of calibration, in tokens."),
    _calibration("random_seed", whole(0), "Seed of calibration."),
    _calibration("tokenizer_max_seq_length", whole(1), "Where the tokenizer cuts texts."),
    _plugin("use_fused_mlp", BOOL, "Fuse the gated MLP."),
    _plugin("use_fp8_context_fmha", BOOL, "Attention over prompts in FP8."),
    _quantisation("smoothquant_alpha", number(0, 1), "SmoothQuant's alpha.", to="smoothquant_val"),
    _quantisation("awq_block_size", whole(1), "Weights that share a scale.", to="group_size"),
    _quantisation("pre_quant_scales", BOOL, "Scales before quantisation.", to="pre_quant_scale"),
    _calibration("calib_size", whole(1), "Batches of calibration.", to="calib_batches"),
    _calibration("awq_calib_size", whole(1), "Batches of calibration.", to="calib_batches"),
    _calibration("calib_batches", whole(1), "Batches of calibration."),
)
