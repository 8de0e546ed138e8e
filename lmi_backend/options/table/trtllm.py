"""TensorRT-LLM: LMI's names, old and new, for arguments of its LLM class.

Every other argument of LLM is an option under its own name.
Source: LMI's TensorRT-LLM user guide, and TensorRT-LLM 1.2.1's llm_args.

Engines that TensorRT-LLM builds ahead are not served: 1.3.0rc20 is its last release with them.
Source: NVIDIA's migration guide "TensorRT Backend Removed" (docs/source/legacy).
"""

from __future__ import annotations

import os
from fnmatch import fnmatch
from operator import not_
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.errors import PlanError
from lmi_backend.options.kinds import BOOL, ITEMS, TEXT, choice, number, whole
from lmi_backend.options.spec import (
    AnyOption,
    ArgumentRows,
    ArgumentSource,
    EngineSpec,
    Implementation,
    Option,
)

if TYPE_CHECKING:
    from lmi_backend.options.spec import Ignore, LmiOptions


_ENDED: Final = "TensorRT-LLM has no TensorRT backend since 1.3.0rc22"
REASON: Final = (
    "only an engine is built with it, and TensorRT-LLM builds none since 1.3.0rc22; serve a "
    "checkpoint that is quantised already"
)
"""Why an option of the builder is refused."""
_ENGINE_FILES: Final = "rank*.engine"
_WEIGHTS: Final = ("*.safetensors", "*.bin", "*.pt", "*.pth")
_CHECKPOINT: Final = "the checkpoint that it was built from (option.model_id: a folder or a hub id)"


def refuse_engines(options: LmiOptions, model: str) -> None:
    """Refuse the TensorRT backend, and a folder of built engines.

    Args:
        model: the folder, or another place, whose content is not known.

    Raises:
        ConfigurationError: one of them is wanted.
    """
    backend = options.passthrough.get("backend")
    if backend is not None and backend.value.strip().lower() == "tensorrt":
        raise backend.error(f"is refused: {_ENDED}; leave it out and serve {_CHECKPOINT}")
    try:
        files = os.listdir(model) if model else []
    except (OSError, ValueError):
        # A hub's model, or no name of a folder.
        return
    engine = min((name for name in files if fnmatch(name, _ENGINE_FILES)), default="")
    has_weights = any(fnmatch(name, weights) for name in files for weights in _WEIGHTS)
    # Another backend reads the weights next to it.
    if engine and not (backend and has_weights):
        beside = "; option.backend=pytorch serves the weights next to it" if has_weights else ""
        raise PlanError(
            f"{model}: {engine} is a built engine, and {_ENDED}; serve {_CHECKPOINT}{beside}"
        )


def _finish(
    options: LmiOptions, arguments: dict[str, Any], reasons: list[str], _ignore: Ignore
) -> None:
    """Let the library count its steps, without which it says nothing of its KV cache."""
    backend = options.passthrough.get("backend")
    is_torch = backend is None or backend.value == "pytorch"
    if is_torch and STEP_COUNTS not in options.passthrough:
        arguments[STEP_COUNTS] = True
        reasons.append(
            f"{STEP_COUNTS} true: the metrics of the KV cache need it; NVIDIA says that it may "
            f"cost a little (option.{STEP_COUNTS}=false)"
        )


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
        running="max_batch_size",
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
        refuse=refuse_engines,
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
    _argument(
        "max_draft_len",
        whole(0),
        "Tokens drafted in a step.",
        to="speculative_config.max_draft_len",
    ),
)
MAX_SEQUENCES: Final = Option(
    name="option.max_num_sequences",
    kind=whole(1),
    scope="trtllm",
    aliases=("option.max_batch_size",),
    plan_field="max_running",
    help="Older name of option.max_rolling_batch_size.",
)
QUANTIZE: Final[AnyOption] = Option(
    name="option.quantize",
    kind=TEXT,
    scope="trtllm",
    env=("HF_MODEL_QUANTIZE",),
    status="refused",
    reason=REASON,
    help=f"Refused: {REASON}.",
)
