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


def _by_name(names: Mapping[str, str]) -> dict[str, str]:
    return {name: why for why, listed in names.items() for name in listed.split()}


UNSERVED_PATHS: Final = _by_name(
    {
        f"{_ONE_WORKER}; operators unload and load models at /models": "/sleep /wake_up"
        " /is_sleeping",
        f"{_ONE_WORKER}; `lmi-backend drain` lets requests end": "/pause /resume /is_paused",
        _ONE_WORKER: "/release_kv_cache_memory",
        f"{_ONE_WORKER}; use py-spy or nsys on the worker": "/start_profile /stop_profile",
        "a request stops when its connection is closed": "/abort_requests",
        "it calls any method of the engine": "/collective_rpc",
        "`lmi-backend plan` and /api/state show it, without secrets": "/server_info",
        "option.kv_events_config says where events are sent": "/kv_event_sources",
        "weights are those of the model's files": "/init_weight_transfer_engine"
        " /shutdown_weight_transfer_engine /start_weight_update /start_draft_weight_update"
        " /update_weights /finish_weight_update /update_weight_version /weight_info"
        " /weight_checker /get_world_size",
        "minWorkers and maxWorkers say how many workers there are": "/scale_elastic_ep"
        " /is_scaling_elastic_ep",
        "a worker that dies is restarted, and its answers resume": "/fault_tolerance/apply"
        " /fault_tolerance/status",
        "one request would use the slots of many; send one for each": "/v1/systemone"
        " /v1/chat/completions/batch /generative_scoring",
        "vLLM serves it with Cohere's library alone; chats are served as OpenAI's": ""
        "/cohere/v2/chat /cohere/v2/chat/render",
        "no WebSocket is": "/v1/realtime",
    }
)
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
HARMLESS: Final = _by_name(
    {
        "a hint or a wish for speed": "eager_input_streaming prediction speed",
        "a wish about an image's size": "oversized_image transformations",
        "a wish for style, which the template would have to tell the model": "verbosity",
        "an answer in the background is generated immediately": "background_options",
        "chats are not stored": "store",
        "chooses among `functions`, which are refused": "function_call",
        "describes a result that the client makes": "output_schema",
        "examples for the model": "input_examples",
        "labels of the client's own": "metadata",
        "names the client's account": "workspace_id",
        "names the client's user": "safety_identifier user_id user_profile_id",
        "names what a body of Anthropic's may have: what it has is looked at": "betas",
        "no answer says why a prefix was not cached": "diagnostics",
        "no thinking is bound to a conversation here": "block_binding prefix_mismatch_behavior",
        "nothing is billed here": "billing_policy fallback_credit_token",
        "of a document, which is refused": "context",
        "of a document, which is refused, or of an earlier text": "citations",
        "of a search, which nobody runs here": "external_web_access filters search_content_types"
        " search_context_size user_location",
        "of a tool that is refused": "acknowledged_safety_checks image",
        "padding against listeners": "stream_options",
        "prefixes are cached without it": "cache_control prompt_cache_breakpoint"
        " prompt_cache_options prompt_cache_retention ttl",
        "reasoning is shown whole": "generate_summary summary",
        "says where an earlier text comes from": "annotations",
        "says who called a tool, or whose it is": "caller caller_id toolset_name",
        "the result's text says it": "is_error",
        "there is one tier": "service_tier",
        "thinking is always shown": "display",
    }
)
"""Members, nested ones too, that OpenAI's and Anthropic's libraries may send and vLLM's server
ignores, and why the answer is still the right one."""
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
REFUSED: Final = _by_name(
    {
        "of `output_config`": "task_budget",
        "of a file": "file_data file_url filename",
        "of a file or an image": "file_id",
        "of a message's own `output_config`": "effort",
        "of a server's tool that a message adds or removes": "server_name",
        "of a tool, unless `direct` is one of them": "allowed_callers",
    }
)
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
