"""Members of OpenAI's and Anthropic's bodies that no server here reads: refused, or harmless.

Sources: the references of OpenAI, Anthropic, Cohere, Fireworks, Groq, Mistral and OpenRouter.
Those of Perplexity, Qwen and xAI. The bodies that the servers of llama.cpp, SGLang, TensorRT-LLM
and tabbyAPI take, and text-generation-webui's, KoboldCpp's and Text Generation Inference's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final


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
    "background_options": "an answer in the background is made at once",
    "betas": "names what a body of Anthropic's may have: what it has is looked at",
    "billing_policy": "nothing is billed here",
    "cache_control": "prefixes are cached without it",
    "diagnostics": "no answer says why a prefix was not cached",
    "fallback_credit_token": "nothing is billed here",
    "function_call": "chooses among `functions`, which are refused",
    "image": "options of a tool that is refused",
    "metadata": "labels of the client's own",
    "prediction": "a hint for speed",
    "prompt_cache_key": "prefixes are cached without it",
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
