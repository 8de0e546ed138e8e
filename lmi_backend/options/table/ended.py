"""Options that do nothing here: each is ignored, with the reason, or refused, with the way out.

Ignored: leaving it out changes no answer. Refused: the user would get something else than asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmi_backend.options.kinds import TEXT
from lmi_backend.options.option import PREFIX, Option, Scope

if TYPE_CHECKING:
    from lmi_backend.options.option import Fate

_TRITON_HTTP = "Triton's own HTTP server is used"
_TRITON_LOADS = "Triton decides which models are loaded"
_NO_JVM = "there is no Java server here"
_V1 = "vLLM no longer has it and schedules by itself"

_IGNORED: dict[Scope, dict[str, str]] = {
    "common": {
        "modelName": "the Triton model's folder names the model",
        "model_dir": "it is the folder of serving.properties",
        "device_id": "devices are chosen by the plan",
        "waiting_steps": "no engine reads it any more",
        "use_passive_workers": "only rank 0 gets requests",
        "max_new_tokens": "LMI never read it; set max_new_tokens in the request",
        "enable_venv": "name the worker's interpreter with option.pythonExecutable",
    },
    "server": {
        "max_batch_delay": "continuous batching does not wait to fill a batch",
        "option.max_batch_delay": "continuous batching does not wait to fill a batch",
        "max_idle_time": "the number of workers is fixed",
        "option.max_idle_time": "the number of workers is fixed",
        "required_memory_mb": "the engine checks memory when it starts",
        "gpu.required_memory_mb": "the engine checks memory when it starts",
        "reserved_memory_mb": "the engine checks memory when it starts",
        "gpu.reserved_memory_mb": "the engine checks memory when it starts",
        "log_request_metric": "Triton's /metrics has the figures",
        "log_model_metric": "Triton's /metrics has the figures",
        "metrics_aggregation": "Triton's /metrics has the figures",
        "metric_dimension": "metrics are labelled with the Triton model",
        "application": _NO_JVM,
        "batchifier": _NO_JVM,
        "inference_address": _TRITON_HTTP,
        "management_address": _TRITON_HTTP,
        "number_of_netty_threads": _TRITON_HTTP,
        "use_native_io": _TRITON_HTTP,
        "io_ratio": _TRITON_HTTP,
        "max_request_size": _TRITON_HTTP,
        "chunked_read_timeout": _TRITON_HTTP,
        "cors_allowed_origin": _TRITON_HTTP,
        "cors_allowed_methods": _TRITON_HTTP,
        "cors_allowed_headers": _TRITON_HTTP,
        "allow_multi_status": _TRITON_HTTP,
        "error_rate_wlm": _TRITON_HTTP,
        "error_rate_server": _TRITON_HTTP,
        "error_rate_model": _TRITON_HTTP,
        "error_rate_any": _TRITON_HTTP,
        "bad_request_http_code": "Triton chooses the status code",
        "wlm_error_http_code": "Triton chooses the status code",
        "throttle_error_http_code": "Triton chooses the status code",
        "timeout_http_code": "Triton chooses the status code",
        "server_error_http_code": "Triton chooses the status code",
        "request_id_header_key": "send the request id as id in the body",
        "keystore": "TLS ends before Triton",
        "keystore_pass": "TLS ends before Triton",
        "keystore_type": "TLS ends before Triton",
        "certificate_file": "TLS ends before Triton",
        "private_key_file": "TLS ends before Triton",
        "plugin_folder": _NO_JVM,
        "model_store": _TRITON_LOADS,
        "load_models": _TRITON_LOADS,
        "wait_model_loading": _TRITON_LOADS,
    },
    "vllm": {
        "device": "vLLM chooses the device by platform",
        "swap_space": _V1,
        "use_v2_block_manager": _V1,
        "num_scheduler_steps": _V1,
        "multi_step_stream_outputs": _V1,
        "preemption_mode": _V1,
        "scheduler_delay_factor": _V1,
        "num_lookahead_slots": _V1,
        "tokenizer_pool_size": _V1,
        "tokenizer_pool_type": _V1,
        "tokenizer_pool_extra_config": _V1,
        "engine_use_ray": _V1,
        "disable_async_output_proc": _V1,
        "disable_log_requests": "requests are not logged; option.enable_log_requests=true does it",
        "calculate_kv_scales": _V1,
        "max_num_partial_prefills": _V1,
        "max_long_partial_prefills": _V1,
        "max_seq_len_to_capture": "use option.cudagraph_capture_sizes",
        "max_context_len_to_capture": "use option.cudagraph_capture_sizes",
    },
    "speculative": {
        "speculative_disable_mqa_scorer": _V1,
        "disable_logprobs_during_spec_decoding": _V1,
    },
    "chat": {"enable_reasoning": "option.reasoning_parser alone turns it on"},
    "adapters": {
        "lora_extra_vocab_size": "vLLM reads it from the adapter",
        "long_lora_scaling_factors": "vLLM no longer has it",
    },
}

_HANDLER = "custom handlers are not supported"
_CHAT = "chat bodies are not served yet"
_SPECULATIVE = "use option.speculative_config={{...}} with {}"

_REFUSED: dict[Scope, dict[str, str]] = {
    "common": {
        "handler": _HANDLER,
        "input_formatter": _HANDLER,
        "s3url": "copy the model to a local folder and name it in option.model_id",
        "cluster_size": "a model over several nodes is not served yet",
        "bedrock_compat": "Bedrock's bodies are not served yet",
        "draft_model_id": _SPECULATIVE.format("model"),
        "spec_length": _SPECULATIVE.format("num_speculative_tokens"),
    },
    "server": {
        "translatorFactory": "it names a Java class",
        "translator": "it names a Java class",
        "model_url_pattern": "requests cannot load models",
        "cluster_address": "a model over several nodes is not served yet",
    },
    "vllm": {
        "tensor_parallel_size": "use option.tensor_parallel_degree",
        "pipeline_parallel_size": "use option.pipeline_parallel_degree",
        "enable_prompt_adapter": "vLLM has no prompt adapters any more",
        "max_prompt_adapters": "vLLM has no prompt adapters any more",
        "max_prompt_adapter_token": "vLLM has no prompt adapters any more",
        "rope_scaling": 'use option.hf_overrides={"rope_parameters": {...}}',
        "rope_theta": 'use option.hf_overrides={"rope_parameters": {...}}',
        "cuda_graph_sizes": "use option.cudagraph_capture_sizes",
        "worker_use_ray": "use option.distributed_executor_backend=ray",
        "quantization_param_path": "vLLM reads the scales from the checkpoint",
        "guided_decoding_backend": 'use option.structured_outputs_config={"backend": ...}',
        "guided_decoding_disable_fallback": "use option.structured_outputs_config",
        "guided_decoding_disable_any_whitespace": "use option.structured_outputs_config",
        "guided_decoding_disable_additional_properties": "use option.structured_outputs_config",
        "override_pooler_config": "use option.pooler_config",
        "override_neuron_config": "use option.additional_config",
        "preloaded_model": "it was never an option for users",
        "qlora_adapter_name_or_path": "vLLM no longer has it; use option.enable_lora",
        "normalize": "embeddings are not served yet",
    },
    "speculative": {
        "speculative_model": _SPECULATIVE.format("model"),
        "speculative_model_quantization": _SPECULATIVE.format("quantization"),
        "speculative_draft_model": _SPECULATIVE.format("model"),
        "speculative_draft_tensor_parallel_size": _SPECULATIVE.format("draft_tensor_parallel_size"),
        "num_speculative_tokens": _SPECULATIVE.format("num_speculative_tokens"),
        "speculative_max_model_len": _SPECULATIVE.format("max_model_len"),
        "speculative_disable_by_batch_size": "vLLM no longer has it",
        "ngram_prompt_lookup_max": _SPECULATIVE.format("method ngram and prompt_lookup_max"),
        "ngram_prompt_lookup_min": _SPECULATIVE.format("method ngram and prompt_lookup_min"),
        "spec_decoding_acceptance_method": "vLLM no longer has it",
        "typical_acceptance_sampler_posterior_threshold": "vLLM no longer has it",
        "typical_acceptance_sampler_posterior_alpha": "vLLM no longer has it",
    },
    "adapters": {"enable_lora_bias": "vLLM no longer loads biases of adapters"},
    "lmcache": {
        "lmcache_config_file": "use option.env=LMCACHE_CONFIG_FILE=... and kv_transfer_config",
        "lmcache_auto_config": "use option.kv_transfer_config",
    },
    "chat": {
        "enable_auto_tool_choice": _CHAT,
        "tool_call_parser": _CHAT,
        "chat_template": _CHAT,
        "chat_template_content_format": _CHAT,
    },
    "sessions": {
        "enable_stateful_sessions": "sessions are not served yet",
        "sessions_path": "sessions are not served yet",
        "sessions_expiration": "sessions are not served yet",
        "sessions_s3url": "sessions are not served yet",
    },
}


def rows() -> tuple[Option[Any], ...]:
    """Return a row for each ended option."""
    fates: tuple[tuple[Fate, dict[Scope, dict[str, str]]], ...] = (
        ("ignored", _IGNORED),
        ("refused", _REFUSED),
    )
    return tuple(
        Option(
            name=_key(scope, name),
            kind=TEXT,
            default="",
            scope=scope,
            help=f"{fate.capitalize()}: {reason}.",
            fate=fate,
            reason=reason,
        )
        for fate, scopes in fates
        for scope, names in scopes.items()
        for name, reason in names.items()
    )


def _key(scope: Scope, name: str) -> str:
    return name if scope == "server" else PREFIX + name
