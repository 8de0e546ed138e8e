"""Options that change what a device holds, and bytes of a number of weights and cache."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lmi_backend.options.argument_types import json_of
from lmi_backend.options.kinds import MOST_DEVICES
from lmi_backend.options.signature import recorded_signature
from lmi_backend.options.table import common as opt
from lmi_backend.options.table import find_option, vllm
from lmi_backend.sizing.quantization import DTYPE_BYTES
from lmi_backend.sizing.step import NEWEST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lmi_backend.options import LmiOptions
    from lmi_backend.options.spec import Option
    from lmi_backend.sizing.model_facts import ModelFacts
    from lmi_backend.sizing.step import Release


_ARGUMENTS: Final = """
    additional_config all2all_backend async_scheduling attention_backend attention_config
    compilation_config convert dcp_comm_backend dcp_q_replicate default_mm_loras
    disable_custom_all_reduce disable_hybrid_kv_cache_manager disable_sliding_window
    ec_transfer_config elastic_ep_max_dp_size enable_batch_sharded_sampling
    enable_cumem_allocator enable_dbo enable_elastic_ep enable_eplb enable_hc_sp
    enable_mamba_shared_prefix_checkpoint enable_mm_embeds enable_moe_shared_loras
    enable_sleep_mode enable_tower_connector_lora enable_trace_replay engram_config
    eplb_config fully_sharded_loras hf_config_path kernel_config kv_cache_dtype_skip_layers
    kv_sharing_fast_prefill kv_transfer_config limit_mm_per_prompt logits_processors
    lora_target_modules mamba_block_size mamba_cache_dtype mamba_cache_mode mamba_config
    max_cudagraph_capture_size max_lora_cls_labels mm_device_do_normalize
    mm_encoder_attn_backend mm_encoder_attn_dtype mm_encoder_only mm_encoder_tp_mode
    mm_ipc_gpu_memory_gb mm_processor_device mm_processor_kwargs model_class_overrides
    model_impl offload_backend offload_group_size offload_num_in_group offload_params
    offload_prefetch_step optimization_level performance_mode pooler_config
    quantization_config replayssm_buffer_len return_sampling_mask skip_mm_profiling
    specialize_active_lora swa_bounded_replay ubatch_size use_fp64_gumbel use_replayssm
    video_pruning_method video_pruning_rate weight_transfer_config
"""
_KEYS: Final = """
    draft_tensor_parallel_size enforce_eager index_share_for_mtp_iteration kv_cache_dtype
    num_speculative_tokens_per_batch_size parallel_drafting quantization tensor_parallel_size
    use_heterogeneous_vocab
"""
UNCOUNTED: Final = frozenset(_ARGUMENTS.split())
"""Arguments of vLLM that change what a device holds, and no plan computes with them."""
_UNCOUNTED_KEYS: Final = frozenset(_KEYS.split())
"""Such keys of `speculative_config`."""
_CONTEXT: Final = ("prefill_context_parallel_size", "decode_context_parallel_size")
_DIGITS: Final = 12
_LARGER_SHARE: Final[Release] = (0, 20)
_OLDER_SHARE: Final = 0.9
"""The release of vLLM that raised its default for `gpu_memory_utilization`, and what it was."""
_PARTITION: Final = "VLLM_PP_LAYER_PARTITION"
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_SIZES: Final = "cudagraph_capture_sizes"
_TEXT_ALONE: Final = "language_model_only"
_OVERRIDES: Final = "hf_overrides"
_SPECULATION: Final = "speculative_config"

_NOTHING: Final = frozenset({"", "none", "null", "auto", "false", "0", "{}", "[]"})
"""Values without effect, for any argument."""


def utilization(options: LmiOptions, release: Release) -> float:
    """Return the share of a device's memory that an engine takes, of a release of vLLM."""
    spec = options.choice.spec
    is_older = spec.implementation.counts_memory_as_vllm and release < _LARGER_SHARE
    share = given_number(options, spec.utilization_option)
    return float(share or (_OLDER_SHARE if is_older else spec.utilization))


def given_number(options: LmiOptions, name: str) -> float | None:
    """Return what an option of the engine says, else LMI's default; None if neither does."""
    option: Option[float | None] | None = find_option(name, options.choice.engine)
    if option is None:
        return None
    return options.values.get(name) or option.lmi_default


def passed_number(options: LmiOptions, name: str) -> int:
    """Return a whole number that the engine is given as text; 0 if it is given none."""
    setting = options.passthrough.get(name)
    text = setting.value.strip() if setting else ""
    return int(text[:_DIGITS]) if text.isascii() and text.isdecimal() else 0


def layer_partition(environment: Mapping[str, str]) -> tuple[int, ...]:
    """Return the layers of each stage, as vLLM's variable has them; empty if it does not."""
    parts = [each.strip() for each in environment.get(_PARTITION, "").split(",")]
    is_list = all(_NUMBER.fullmatch(each) for each in parts)
    return tuple(map(int, parts)) if is_list else ()


def adapter_slots(options: LmiOptions) -> int:
    """Return the bytes that vLLM keeps free for adapters, for each in- or output of a matrix."""
    is_vllm = options.choice.spec.implementation.counts_memory_as_vllm
    if not is_vllm or not options[vllm.ENABLE_LORA]:
        return 0
    size = DTYPE_BYTES.get(options[vllm.LORA_DTYPE], 2)
    return options[vllm.MAX_LORAS] * options[vllm.MAX_LORA_RANK] * size


def context_ranks(options: LmiOptions) -> tuple[int, int]:
    """Return the ranks that share a prompt's computation, and those that share its cache.

    The former are added to those of tensor parallelism, the latter are among them.
    """
    if not options.choice.spec.implementation.counts_memory_as_vllm:
        return 1, 1
    prefill, decode = (max(1, min(passed_number(options, name), MOST_DEVICES)) for name in _CONTEXT)
    return prefill, decode


def copies(options: LmiOptions) -> int:
    """Return how often the devices of a worker have the layers, but each expert only once."""
    return options[vllm.DATA_PARALLEL_SIZE] * context_ranks(options)[0]


def without_encoders(options: LmiOptions, facts: ModelFacts) -> ModelFacts:
    """Return the model without the encoders that vLLM is told to leave out.

    It leaves one out if the limit is 0 for everything that the encoder reads.
    """
    shape = facts.shape
    is_vllm = options.choice.spec.implementation.counts_memory_as_vllm
    alone = options.passthrough.get(_TEXT_ALONE)
    limits = options[vllm.LIMIT_MM_PER_PROMPT]
    is_alone = alone is not None and alone.value.strip().lower() == "true"
    sounds = shape.sound_parameters
    out = 0
    if is_alone or all(limits.get(kind) == 0 for kind in ("image", "video")):
        out += shape.vision_parameters - sounds
    if is_alone or limits.get("audio") == 0:
        out, sounds = out + sounds, 0
    if not (is_vllm and out):
        return facts
    left = facts.weights.total - out * DTYPE_BYTES.get(shape.dtype, 2)
    return replace(
        facts,
        shape=replace(
            shape, vision_parameters=shape.vision_parameters - out, sound_parameters=sounds
        ),
        weights=replace(facts.weights, total=max(1, left)),
    )


def captured_sizes(options: LmiOptions) -> tuple[int, ...]:
    """Return the sizes of batches whose CUDA graphs are captured; empty if nobody says."""
    setting = options.passthrough.get(_SIZES)
    sizes = options[vllm.CUDA_GRAPH_SIZES]
    if setting:
        words = re.split(r"[\s,]+", setting.value.strip().strip("[]").strip())
        sizes = [int(word[:_DIGITS]) for word in words if word.isascii() and word.isdecimal()]
    return tuple(dict.fromkeys(sizes))


def config_overrides(options: LmiOptions) -> Mapping[str, object] | None:
    """Return what vLLM is told to take instead of fields in config.json.

    None if it is something else than an object, such as the name of a function.
    """
    setting = options.passthrough.get(_OVERRIDES)
    if setting is None or not options.choice.spec.implementation.counts_memory_as_vllm:
        return {}
    overrides = json_of(setting.value or "{}")
    return overrides if isinstance(overrides, dict) else None


def uncounted_arguments(options: LmiOptions, release: Release) -> tuple[str, ...]:
    """Return the arguments that change the engine's memory and are not counted.

    Of a release that is newer than our record, so are arguments that the record does not know.
    """
    record = recorded_signature(options.choice.spec.implementation.name)
    names = {**record.arguments, **record.server} if record else {}
    uncounted = []
    for name, text in _given(options):
        is_new = release > NEWEST and name not in names and "." not in name
        default = names[name].default.strip("'").lower() if name in names else ""
        is_given = text.strip().lower() not in _NOTHING | {default}
        is_unread = name == _OVERRIDES and config_overrides(options) is None
        first, _, key = name.partition(".")
        is_uncounted = key in _UNCOUNTED_KEYS if first == _SPECULATION else first in UNCOUNTED
        if is_given and (is_new or is_unread or is_uncounted):
            uncounted.append(name)
    return tuple(dict.fromkeys(uncounted))


def _given(options: LmiOptions) -> Iterator[tuple[str, str]]:
    """Yield each argument of the engine that an option sets, and what it says."""
    implementation = options.choice.spec.implementation
    for name, value in options.values.items():
        option = find_option(name, options.choice.engine)
        argument = option.argument_of(implementation) if option else ""
        if argument == _SPECULATION:
            yield from ((f"{argument}.{key}", str(each)) for key, each in (value or {}).items())
        elif argument:
            yield argument, str(value)
    for name, setting in options.passthrough.items():
        yield name, setting.value


_BYTES: Final = {**DTYPE_BYTES, "int8": 1}
_RUNTIME_QUANTISATION: Final = {
    "fp8": 8, "bitsandbytes": 4, "bitsandbytes4": 4, "bitsandbytes8": 8,
}  # fmt: skip
_CACHE_FROM_FILE: Final[Release] = (0, 12)
"""The release of vLLM that takes a cache of 8 bits where a ModelOpt checkpoint has its scales."""
_NARROW: Final = (
    ("fp8_ds_mla", 656 / 576),
    ("nvfp4_ds_mla", 352 / 576),
    ("nvfp4", 0.5 + 1 / 16),
    ("k8v4", 0.78),
    ("k3v4", 0.47),
    ("4bit", 0.53),
    ("3bit", 0.41),
    ("int4", 0.5 + 4 / 128),
    ("per_token_head", 1 + 4 / 128),
    ("fp8", 1.0),
    ("int8", 1.0),
)
"""Bytes of a number of the cache with its scales, for types with this text in their name. Sparse
attention packs a vector of 8 bits with its scales and its rotations, which have 16."""


def cache_bytes(options: LmiOptions, facts: ModelFacts, release: Release) -> float:
    """Return the bytes of one cached number."""
    word = str(options[vllm.KV_CACHE_DTYPE] or "auto")
    if facts.cache.is_mla and facts.cache.index_bytes and word.startswith("fp8"):
        word = "fp8_ds_mla"
    narrow = next((size for name, size in _NARROW if name in word), 0.0)
    if narrow:
        return narrow
    is_vllm = options.choice.spec.implementation.counts_memory_as_vllm
    if word == "auto" and is_vllm and facts.cache.is_8_bit and release >= _CACHE_FROM_FILE:
        return 1
    return _BYTES.get(word) or model_bytes(options, facts)


def model_bytes(options: LmiOptions, facts: ModelFacts) -> int:
    """Return the bytes of one number of what is not quantised, in memory."""
    dtype = options[opt.DTYPE]
    if dtype == "auto":
        # Others than Transformers serve a model stored in float32 in 16 bits.
        cpu_cache = options.choice.spec.implementation.cpu_cache
        return _BYTES.get(facts.shape.dtype, 2) if cpu_cache else 2
    return _BYTES[dtype]


def weight_scale(options: LmiOptions, facts: ModelFacts) -> float:
    """Return bytes in memory for one byte of the checkpoint."""
    if facts.shape.quantization:
        return 1.0
    stored = _BYTES.get(facts.shape.dtype, 2)
    bits = _RUNTIME_QUANTISATION.get(options[vllm.QUANTIZE] or "")
    return (bits / 8 if bits else model_bytes(options, facts)) / stored
