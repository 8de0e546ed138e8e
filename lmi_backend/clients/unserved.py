"""Paths and members of bodies that no server here reads: refused, or harmless.

Sources: the references of OpenAI, Anthropic, Cohere, Fireworks, Groq, Mistral and OpenRouter.
Those of Perplexity, Qwen and xAI. The bodies that the servers of llama.cpp, SGLang, TensorRT-LLM
and tabbyAPI take, and text-generation-webui's, KoboldCpp's and Text Generation Inference's. Nested
names are those of the types by which the libraries of OpenAI and Anthropic describe what they
send.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_ONE_WORKER: Final = "one of several workers would get it"
_MANY: Final = "one request would use the slots of many; send one for each"
_WEIGHTS: Final = "weights are those of the model's files"
_ELASTIC: Final = "minWorkers and maxWorkers say how many workers there are"
_DEATHS: Final = "a worker that dies is restarted, and its answers resume"
_COHERE: Final = "vLLM serves it with Cohere's library alone; chats are served as OpenAI's"

_REASONS: Final[dict[str, str]] = {
    "/sleep /wake_up /is_sleeping": f"{_ONE_WORKER}; operators unload and load models at /models",
    "/pause /resume /is_paused": f"{_ONE_WORKER}; `lmi-backend drain` lets requests end",
    "/release_kv_cache_memory": _ONE_WORKER,
    "/start_profile /stop_profile": f"{_ONE_WORKER}; use py-spy or nsys on the worker",
    "/abort_requests": "a request stops when its connection is closed",
    "/collective_rpc": "it calls any method of the engine",
    "/server_info": "`lmi-backend plan` and /api/state show it, without secrets",
    "/kv_event_sources": "option.kv_events_config says where events are sent",
    "/init_weight_transfer_engine /shutdown_weight_transfer_engine /start_weight_update"
    " /start_draft_weight_update /update_weights /finish_weight_update /update_weight_version"
    " /weight_info /weight_checker /get_world_size": _WEIGHTS,
    "/scale_elastic_ep /is_scaling_elastic_ep": _ELASTIC,
    "/fault_tolerance/apply /fault_tolerance/status": _DEATHS,
    "/v1/chat/completions/batch /generative_scoring /v1/systemone": _MANY,
    "/cohere/v2/chat /cohere/v2/chat/render": _COHERE,
    "/v1/realtime": "no WebSocket is",
}
UNSERVED_PATHS: Final = {path: why for paths, why in _REASONS.items() for path in paths.split()}
"""Path to the reason."""


_BORDER: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def plain_name(name: str) -> str:
    """Return a name as the members of bodies are spelt: `max_tokens` for `maxTokens`."""
    # Most names are plain.
    if name.islower() and "-" not in name:
        return name
    return _BORDER.sub("_", name).replace("-", "_").lower()


def each_of(names: str, *nothing: Any) -> dict[str, tuple[Any, ...]]:
    """Return names, as a text, with the values that have no effect."""
    return dict.fromkeys(names.split(), nothing)


UNSERVED: Final[Mapping[str, tuple[Any, ...]]] = {
    **each_of(
        """
        access_programs audio bad_words_ids banned_phrases banned_strings banned_tokens
        beam_width_array begin_suppress_tokens best_of character chat_template_str
        compaction connectors container context_management conversation
        custom_logit_processor custom_stopping_strings custom_token_bans
        disaggregated_params dynamic_temperature early_stopping enable_code_interpreter
        enable_search end_id eos_token_id exponential_decay_length_penalty extra_body
        fallbacks force_words_ids forced_bos_token_id forced_eos_token_id format functions
        generation_config guardrails inference_config inference_geo input_ids
        instruction_template instruction_template_str json_mode logits_processors lora
        lora_path lora_request max_input_tokens max_length max_thinking_tokens max_time
        mcp_servers mirostat_target models moderation negative_prompt nvext options
        output_format parameters plugins preamble preset prompt_adapter prompt_mode
        prompt_truncate_len provider raw_prompting response_schema return_hidden_states
        return_images return_related_questions route safe_prompt safety_settings
        sampler_order sampler_priority samplers sampling_params search_domain_filter
        search_mode search_options search_parameters search_recency_filter sequence_bias
        session_params stop_regex strict_tools suppress_tokens system_instruction
        system_prompt temperature_last template thread token_healing tool_config tool_prompt
        transforms translation_options watermark web_search_options
        """,
    ),
    **each_of(
        """
        dry_multiplier dynatemp_range epsilon_cutoff eta_cutoff max_tokens_second min_keep
        mirostat mirostat_mode n_indent n_keep n_probs no_repeat_ngram_size nsigma
        penalty_alpha smoothing_factor top_a xtc_probability
        """,
        0,
    ),
    **each_of(
        """
        beam_width cfg_scale encoder_repetition_penalty guidance_scale num_beams rep_pen
        repeat_penalty tfs tfs_z top_p_decay typ_p typical_p
        """,
        1,
    ),
    **each_of(
        """
        reasoning_budget thinking_budget thinking_budget_tokens
        """,
        -1,
    ),
    "t_max_predict_ms": (0, -1),
    "top_n_sigma": (0, -1),
    "modalities": (["text"],),
    "prompt_truncation": ("OFF",),
    "reasoning_format": ("auto", "parsed", "deepseek"),
    "response_mime_type": ("text/plain",),
    "safety_mode": ("NONE",),
}
"""Members that select or limit an answer and that nothing here serves. Each has the values without
effect, in addition to null, false and what is empty."""
HARMLESS: Final[Mapping[str, str]] = {
    "background_options": "an answer in the background is generated immediately",
    "betas": "names what a body of Anthropic's may have: what it has is looked at",
    "billing_policy": "nothing is billed here",
    "cache_control": "prefixes are cached without it",
    "diagnostics": "no answer says why a prefix was not cached",
    "fallback_credit_token": "nothing is billed here",
    "function_call": "chooses among `functions`, which are refused",
    "image": "options of a tool that is refused",
    "metadata": "labels of the client's own",
    "prediction": "a hint for speed",
    "prompt_cache_options": "prefixes are cached without it",
    "prompt_cache_retention": "prefixes are cached without it",
    "safety_identifier": "names the client's user",
    "service_tier": "there is one tier",
    "speed": "a wish for speed",
    "store": "chats are not stored",
    "stream_options": "padding against listeners",
    "user_profile_id": "names the client's user",
    "verbosity": "a wish for style, which the template would have to tell the model",
    "workspace_id": "names the client's account",
}
"""Members that OpenAI's and Anthropic's own libraries may send and vLLM's server ignores, and why
the answer is still the right one."""
HINTS: Final = ("prompt_cache_key",)
"""Members that choose among several workers, and that vLLM's server ignores."""


OFFERED: Final = (
    "web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11",
)  # fmt: skip
"""Types of tools that are left out where the model has others to choose from: Codex always offers
one of them."""
HOSTED: Final = (
    *OFFERED, "apply_patch", "code_interpreter", "computer", "computer_use_preview", "file_search",
    "image_generation", "local_shell", "mcp", "programmatic_tool_calling", "shell", "tool_search",
)  # fmt: skip
"""Types of a response's tools that OpenAI's own server runs or describes to its model."""
ITEMS: Final = ("additional_tools",)
"""Types of a response's items that have a role, so that vLLM's server takes them for messages."""
REFUSED: Final[Mapping[str, str]] = {
    "allowed_callers": "of a tool, unless `direct` is one of them",
    "effort": "of a message's own `output_config`",
    "file_data": "of a file",
    "file_id": "of a file or an image",
    "file_url": "of a file",
    "filename": "of a file",
    "server_name": "of a server's tool that a message adds or removes",
    "task_budget": "of `output_config`",
}
"""Members that limit or select, and where they stand."""
MENDED: Final[Mapping[str, str]] = {
    "clear_at": "messages past their `clear_at` are dropped",
    "refusal": "its text becomes a part of the message",
}
"""Members whose meaning a body is given before the engine's server reads it."""
REASONING: Final[Mapping[str, object]] = {"enabled": True, "exclude": False, "max_tokens": None}
"""Other servers' members of a response's `reasoning`, and their values without effect."""
PARTS: Final = ("text", "image", "tool_reference")
"""Types of a tool result's parts that reach the model of an Anthropic message."""
HARMLESS_NESTED: Final[Mapping[str, str]] = {
    "acknowledged_safety_checks": "of a tool that is refused",
    "annotations": "says where an earlier text comes from",
    "block_binding": "no thinking is bound to a conversation here",
    "caller": "says who called a tool",
    "caller_id": "says who called a tool",
    "citations": "of a document, which is refused, or of an earlier text",
    "context": "of a document, which is refused",
    "display": "thinking is always shown",
    "eager_input_streaming": "a wish for speed",
    "external_web_access": "of a search, which nobody runs here",
    "filters": "of a search, which nobody runs here",
    "generate_summary": "reasoning is shown whole",
    "input_examples": "examples for the model",
    "is_error": "the result's text says it",
    "output_schema": "describes a result that the client makes",
    "oversized_image": "a wish about an image's size",
    "prefix_mismatch_behavior": "no thinking is bound to a conversation here",
    "prompt_cache_breakpoint": "prefixes are cached without it",
    "search_content_types": "of a search, which nobody runs here",
    "search_context_size": "of a search, which nobody runs here",
    "summary": "reasoning is shown whole",
    "toolset_name": "says whose tool was called",
    "transformations": "wishes about an image's size",
    "ttl": "prefixes are cached without it",
    "user_id": "names the client's user",
    "user_location": "of a search, which nobody runs here",
}
"""Nested members without an effect, and why the answer is still the right one."""
