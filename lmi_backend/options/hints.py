"""What somebody may have meant: a known name that is spelt alike, or LMI's name for theirs.

The names are those of vLLM, TGI, SGLang, llama.cpp and Ollama.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable
from typing import Final

# LMI's name, and those that other engines have for it, to others' words, with blanks between. What
# is an engine's own name, or means something else to another server, is none of these.
_WORDS: Final[dict[str, str]] = {
    "option.model_id": "model_path model_name_or_path hf_repo hf_model_repo model_dir_or_id model"
    " hf_model_id pretrained_model_name_or_path repo_id",
    "option.rolling_batch": "serving_engine inference_engine backend serving_backend"
    " inference_backend rolling_batch_type",
    "option.tensor_parallel_degree": "tp tp_size tp_degree tp_world_size tensor_parallel"
    " num_shard num_shards sharded num_gpus num_gpu gpu_count world_size tensor_parallelism"
    " tensor_model_parallel_size n_gpu number_of_gpus sm_num_gpus",
    "option.pipeline_parallel_degree": "pp pp_size pp_degree pipeline_parallel"
    " pipeline_parallelism",
    "option.data_parallel_size": "dp dp_size data_parallel data_parallel_degree",
    "option.enable_expert_parallel": "ep ep_size expert_parallel expert_parallel_size"
    " enable_ep_moe",
    "option.max_model_len option.max_seq_len option.n_positions": "context_length context_len"
    " context_size context_window ctx_size n_ctx"
    " num_ctx max_context_length max_context_len max_total_tokens max_input_length"
    " max_input_tokens max_input_len max_sequence_length max_sequence_len max_seq_length"
    " max_seq_len max_length max_len model_max_length max_position_embeddings",
    "option.max_rolling_batch_size": "max_running_requests max_batch_size max_concurrency"
    " max_num_sequences max_running_seqs n_parallel num_parallel parallel max_concurrent_sequences"
    " rolling_batch_size max_rolling_batch",
    "option.max_rolling_batch_prefill_tokens": "max_batch_prefill_tokens chunked_prefill_size"
    " max_prefill_tokens n_batch max_batched_tokens max_num_batch_tokens prefill_chunk_size",
    "option.gpu_memory_utilization": "mem_fraction_static mem_fraction cuda_memory_fraction"
    " gpu_memory_fraction gpu_utilization gpu_mem_utilization kv_cache_free_gpu_mem_fraction"
    " gpu_memory_util memory_utilization gpu_memory_usage mem_frac mem_util gpu_mem_util"
    " gpu_mem_fraction static_mem_fraction memory_fraction gpu_mem_frac vram_fraction",
    "option.enforce_eager": "disable_cuda_graph disable_cuda_graphs eager eager_mode",
    "option.enable_prefix_caching": "radix_cache prefix_caching prefix_cache"
    " enable_prefix_cache enable_kv_cache_reuse cache_prompt automatic_prefix_caching",
    "option.enable_chunked_prefill": "chunked_prefill use_chunked_prefill",
    "option.quantize": "quant quantisation quantization_method quantize_method weight_quantization",
    "option.kv_cache_dtype": "cache_type_k cache_type_v kv_cache_type kv_dtype kv_cache_data_type",
    "option.dtype": "torch_dtype precision weight_dtype model_dtype",
    "option.trust_remote_code": "remote_code allow_remote_code hf_trust_remote_code",
    "option.entryPoint": "entry_point",
    "option.revision": "model_revision hf_revision branch commit",
    "option.block_size": "page_size kv_block_size tokens_per_block",
    "option.seed": "random_seed rng_seed",
    "option.chat_template": "chat_template_file chat_template_path template jinja_template",
    "option.reasoning_parser": "reasoning_format deepseek_reasoning_parser",
    "option.tool_call_parser": "tool_parser tool_calling_parser function_call_parser",
    "option.enable_auto_tool_choice": "auto_tool_choice enable_tool_calling enable_tools"
    " enable_tool_use enable_function_calling tool_calling",
    "option.lora_modules": "lora_adapters lora_paths lora_adapter lora_init_without_apply"
    " adapter_paths adapters_list",
    "option.max_lora_rank": "lora_rank max_rank",
    "option.max_loras": "max_loras_per_batch max_active_adapters max_adapters",
    "option.speculative_config": "speculative_algorithm draft_model model_draft"
    " speculative_num_steps speculate draft_max speculative_decoding"
    " spec_decoding speculative_method speculative_num_draft_tokens",
    "option.speculative_draft_model": "speculative_draft_model_path hf_repo_draft",
    "option.served_model_name": "model_name served_name model_alias api_model_name",
    "option.load_format": "model_format weight_format",
    "option.scheduling_policy": "schedule_policy scheduler_policy",
    "option.model_loading_timeout": "load_timeout startup_timeout model_load_timeout",
    "option.predict_timeout": "request_timeout inference_timeout",
    "option.log_requests": "log_request request_logging",
    "job_queue_size": "max_queue_size max_queue max_queued_requests queue_size"
    " max_concurrent_requests",
    "maxWorkers": "max_workers num_workers workers model_workers num_replicas",
    "minWorkers": "min_workers",
}


def _squeezed(word: str) -> str:
    return re.sub(r"[\W_]", "", word).lower()


MEANINGS: Final = {
    _squeezed(word): tuple(names.split())
    for names, words in _WORDS.items()
    for word in words.split()
}
"""Another server's parameter, in small letters and without separators, to LMI's names for it."""


def meanings_of(word: str) -> tuple[str, ...]:
    """Return LMI's names for an option of another server."""
    return MEANINGS.get(_squeezed(word), ())


_LONGEST_WORD: Final = 100
_ALIKE: Final = 0.85
"""How like a known name a misspelt one is, at least."""
_BEGINNING: Final = re.compile(r"options?[._]|SERVING_|SM_VLLM_", re.IGNORECASE)
_REMARK: Final = re.compile(r"\s#(?!\{)")
# Structured values, and templates, in which such a sign may stand for something.
_STRUCTURED: Final = re.compile(r"\s*[\[{]|.*?(\n|\{\{|\{%)", re.DOTALL)
REMARK: Final = (
    "has a remark at its end, which is a part of the value here; "
    "accepted: the remark on a line of its own"
)
"""The problem of a value in which `remark_in` finds a remark."""


def closest(word: str, names: Iterable[str]) -> str:
    """Return a hint naming what somebody may have meant, or nothing.

    It names the known name that is spelt almost like theirs, or LMI's name for an option of another
    server. A name that is only similar is not enough: it would lead to another option.
    """
    if len(word) > _LONGEST_WORD:
        return ""
    words, plain = tuple(names), _plain(word)
    # Hardly anybody errs in the first letter, and gpu_… is not cpu_….
    alike = {each: name for name in reversed(words) if (each := _plain(name))[:1] == plain[:1]}
    near = difflib.get_close_matches(plain, alike, n=1, cutoff=_ALIKE)
    # Letters in another order make a short name less alike than it is.
    near += [each for each in alike if sorted(each) == sorted(plain)]
    if near:
        return f"; did you mean {alike[near[0]]}?"
    meant = next((name for name in MEANINGS.get(plain, ()) if name in words), "")
    return f"; LMI's name for it is {meant}" if meant else ""


@functools.lru_cache(maxsize=4096)
def _plain(word: str) -> str:
    """Return a name without what says only where it is written, and without separators."""
    return _squeezed(_BEGINNING.sub("", word, count=1) if _BEGINNING.match(word) else word)


def remark_in(value: str) -> bool:
    """Tell whether a value seems to end in a remark: `awq   # as published`.

    In a file of properties, for LMI too, a remark is a line of its own.
    """
    return bool(_REMARK.search(value)) and not _STRUCTURED.match(value)
