"""Options that do nothing here: each is ignored, with the reason, or refused, with the way out.

Ignored: it changes no answer. Refused: the user would get something else than the option says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from lmi_backend.options.kinds import BOOL, TEXT
from lmi_backend.options.spec import PREFIX, AnyOption, Option
from lmi_backend.options.table.trtllm import REASON

_OWN_HTTP = "LMI's HTTP server is not here; lmi-backend serve --help has what the front end takes"
_STATUS = "the status codes are LMI's own defaults"
_TRITON_LOADS = (
    "it says nothing of one model; serve and convert read the variables SERVING_MODEL_STORE and "
    "SERVING_LOAD_MODELS"
)
_NO_JVM = "there is no Java server here"
_V1 = "vLLM no longer has it"

_SCHEDULER = "batching is continuous; LMI's old scheduler needed it"
_CONFIG_JSON = "the model's config.json says it"
_CONVERSION = "it concerns conversion by LMI's own toolkit"
_PARTITION = (
    "only LMI's partition command reads it, which writes a checkpoint; nothing does at serving"
)
_NEURON = "Transformers-NeuronX is retired, and vllm-neuron decides it itself"

# Of each scope: names, with blanks between them, to the reason they share.
_IGNORED: dict[str, dict[str, str]] = {
    "common": {
        "modelName": "the Triton model's folder names the model",
        "model_dir": "it is the folder of serving.properties",
        "device_id": "LMI sets it itself; load_on_devices names devices",
        "use_passive_workers": "only rank 0 gets requests",
        "waiting_steps": "no engine reads it any more",
        "input_formatter": "LMI sets it itself, from a model.py",
        "max_new_tokens": "LMI never read it; set max_new_tokens in the request",
        "enable_streaming stream streaming": "the request says whether to stream",
        "temperature top_p top_k do_sample repetition_penalty": "LMI never read it; each request "
        "says it, or the model's generation_config.json",
        "enable_thinking": "LMI never read it; the request's chat_template_kwargs says it, or "
        'option.default_chat_template_kwargs={"enable_thinking": true}',
        "loadformat": "LMI never read it; it has option.load_format",
        "speculative_decoding": "LMI never read it; vLLM has option.speculative_config",
        "lora_extra_vocad_size": "LMI never read it, and vLLM no longer has it",
        "max_rolling_batch": "LMI never read it; it has option.max_rolling_batch_size",
        "use_flash_attn use_flash_attention flash_attention": "LMI never read it; vLLM chooses, "
        "and option.attention_backend overrides",
        "enable_venv": "name the worker's interpreter with option.pythonExecutable",
    },
    "server": {
        "max_batch_delay"
        " option.max_batch_delay": "continuous batching does not wait to fill a batch",
        "log_request_metric log_model_metric"
        " metrics_aggregation": "Triton's and the front end's /metrics have the figures",
        "metric_dimension": "metrics are labelled with the Triton model",
        "application batchifier": _NO_JVM,
        "inference_address": "serve --host and --port say it",
        "management_address": "the front end's port has /models, for operators' keys",
        "cluster_address": "there is no listener for other nodes",
        "number_of_netty_threads use_native_io io_ratio": _OWN_HTTP,
        "max_request_size": "serve --max-body says it, for the front end",
        "chunked_read_timeout": "serve --client-timeout says it, for the front end",
        "cors_allowed_origin cors_allowed_methods"
        " cors_allowed_headers": "serve --allowed-origins says it, for the front end",
        "allow_multi_status": _STATUS,
        "error_rate_wlm error_rate_server error_rate_model"
        " error_rate_any": "a server is ready while its models are, even if requests fail",
        "bad_request_http_code wlm_error_http_code throttle_error_http_code timeout_http_code"
        " server_error_http_code": _STATUS,
        "request_id_header_key": "the front end's header is x-request-id; in a body it is id",
        "keystore keystore_pass keystore_type certificate_file private_key_file": "serve "
        "--tls-certificate and --tls-key say it, for the front end",
        "plugin_folder": _NO_JVM,
        "normalize": "it is of LMI's Java engines, which are not here; vLLM's embeddings have "
        "option.normalize",
        "fail_fast": "Triton's --exit-on-error decides",
        "model_store load_models": _TRITON_LOADS,
        "wait_model_loading": "Triton's --exit-on-error and --strict-readiness say it",
    },
    "vllm": {
        "device": "vLLM chooses the device by platform",
        "swap_space use_v2_block_manager num_scheduler_steps multi_step_stream_outputs"
        " preemption_mode scheduler_delay_factor num_lookahead_slots tokenizer_pool_size"
        " tokenizer_pool_type tokenizer_pool_extra_config engine_use_ray disable_async_output_proc"
        " calculate_kv_scales max_num_partial_prefills max_long_partial_prefills"
        " lora_extra_vocab_size long_lora_scaling_factors": _V1,
        "paged_attention": "vLLM's KV cache is always paged",
        "max_prompt_adapters max_prompt_adapter_token": "vLLM has no prompt adapters any more",
        "quantization_param_path": "vLLM reads the scales from the checkpoint",
        "guided_decoding_disable_fallback": "vLLM no longer falls back",
        "max_seq_len_to_capture max_context_len_to_capture": "use option.cudagraph_capture_sizes",
    },
    "speculative": {
        "speculative_disable_mqa_scorer disable_logprobs_during_spec_decoding"
        " speculative_disable_by_batch_size spec_decoding_acceptance_method"
        " typical_acceptance_sampler_posterior_threshold"
        " typical_acceptance_sampler_posterior_alpha": _V1,
    },
    "sessions": {"sessions_path sessions_expiration": "sessions are not served yet"},
    "chat": {"enable_reasoning": "option.reasoning_parser alone turns it on"},
    "lmi-dist": {
        "speculative_telemetry": "nothing is reported to SageMaker",
    },
    "transformers": {
        "is_peft_model": "adapter_config.json says it",
        "max_sparsity max_splits multi_gpu": _SCHEDULER,
        "image_placeholder_token": "the model's chat template has it",
    },
    "trtllm": {
        "auto_parallel auto_parallel_world_size": "TensorRT-LLM no longer has it",
        "use_custom_all_reduce": "TensorRT-LLM chooses; option.allreduce_strategy overrides",
        "multi_block_mode": "it is always on",
        "multi_query_mode baichuan_model_version chatglm_model_version gpt_model_version"
        " rotary_base rotary_dim rotary_scaling_type rotary_scaling_factor": _CONFIG_JSON,
        "logits_dtype": "it concerns the building of T5 engines by LMI's own toolkit",
        "trtllm_checkpoint_path num_checkpoint_workers num_engine_workers"
        " load_by_shard": _CONVERSION,
    },
    "deepspeed": {
        "enable_cuda_graph triangular_masking return_tuple training_mp_size"
        " deepspeed_config_path": "only DeepSpeed itself reads it; the model runs on Transformers",
    },
    "vllm-neuron": {
        "unroll load_split_model group_query_attention": _NEURON,
        "model_loader": "vllm-neuron is the only loader",
        "low_cpu_mem_usage": "vllm-neuron has nothing like it",
        "rolling_batch_strategy": "batching is continuous",
        "fuse_mlp fused_rmsnorm_qkv qkv_tiling weight_tiling mlp_out_weight_transpose"
        " attention_layout collectives_layout cache_layout partition_schema all_reduce_dtype"
        " cast_logits_dtype sequence_parallel_norm_threshold shard_over_sequence"
        " compilation_worker_count neuron_cc_pipeline_factor neuron_quant": _NEURON,
        "neuron_optimize_level": "vllm-neuron compiles with -O1 by itself; "
        "option.optimization_level=3 says -O3",
        "compiled_graph_path": "its graphs are kept where NEURON_COMPILED_ARTIFACTS in option.env "
        "says",
        "context_length_estimate": "the lengths of prompts that are compiled stand in "
        "option.additional_config, as num_batched_tokens_buckets of neuron_config",
        "fuse_qkv enable_mixed_precision_accumulation enable_saturate_infinity on_device_embedding"
        " sequence_parallel": "vllm-neuron decides it itself",
        "draft_model_tp_size": "a draft has the degree of its model",
        "draft_model_compiled_path": "it compiles drafts where it keeps all graphs",
    },
    "partition": {
        "save_mp_checkpoint_path fp8_scheme fp8_ignore fp8_activation_scheme fp8_ignore_patterns"
        " fp8_kv_cache_quant_targets awq_zero_point awq_weight_bit_width awq_mm_version"
        " awq_ignore_layers partition_handler": _PARTITION,
    },
}

_SESSIONS = "sessions are not served yet"
_NO_JAVA = "it names a Java class, and there is no Java server here"
_SKLEARN = "scikit-learn and XGBoost models are not served"
_ONNX = "it is of LMI's ONNX engine; Triton's own onnxruntime backend runs ONNX models"
_TORCH = "it is of LMI's PyTorch engine; Triton's own pytorch backend runs TorchScript models"
_IMAGES = "images are not generated here"
_JAVA_EMBEDDING = "it is of LMI's Java engines, which are not here; vLLM's embeddings have"
_FORK = "it needs AWS's own fork of DeepSpeed"

_REFUSED: dict[str, dict[str, str]] = {
    "common": {"bedrock_compat": "Bedrock's bodies are not served yet"},
    "server": {
        "translatorFactory translator": _NO_JAVA,
        "model_url_pattern": "no request can load a model from a url, with any pattern",
    },
    "vllm": {
        "enable_prompt_adapter": "vLLM has no prompt adapters any more",
        "enable_lora_bias": "vLLM no longer loads biases of adapters",
        "rope_scaling rope_theta": 'use option.hf_overrides={"rope_parameters": {...}}',
        "override_neuron_config": "use option.additional_config",
        "preloaded_model": "it was never an option for users",
        "qlora_adapter_name_or_path": "vLLM no longer has it; use option.enable_lora",
    },
    "trtllm": {
        "q_format awq_format quant_algo kv_cache_quant_algo group_size smoothquant_val"
        " smoothquant_alpha smoothquant_per_token smoothquant_per_channel awq_block_size"
        " pre_quant_scales clamp_val use_meta_recipe has_zero_point exclude_modules": REASON,
        "calib_dataset calib_batch_size calib_max_seq_length calib_size awq_calib_size"
        " calib_batches random_seed tokenizer_max_seq_length use_fused_mlp use_fp8_context_fmha"
        " extended_runtime_perf_knob_config": REASON,
        "batching_type build_config calib_config embedding_parallel_mode enable_build_cache"
        " enable_prompt_adapter enable_tqdm fast_build max_prompt_adapter_token"
        " normalize_log_probs quant_config workspace": REASON,
    },
    "lmcache": {"lmcache_auto_config": "use option.kv_transfer_config"},
    "sessions": {"enable_stateful_sessions sessions_s3url": _SESSIONS},
    "deepspeed": {
        "quantize": f"{_FORK}; vLLM quantises too",
        "smoothquant_alpha": _FORK,
        "checkpoint": "DeepSpeed's own checkpoints are not read; use option.model_id",
    },
    "vllm-neuron": {
        "multi_node": "a model over several Neuron nodes is not served",
        "height width num_images_per_prompt use_auth_token use_stable_diffusion": _IMAGES,
        "quantize load_in_8bit": "vllm-neuron takes the quantisation of the checkpoint, or "
        "neuron_config's in option.additional_config, and none by name; leave it out",
    },
    "other handlers": {
        "option.model_format option.trust_insecure_model_files option.skops_trusted_types"
        " option.default_accept": _SKLEARN,
        "option.optimization option.interOpNumThreads option.intraOpNumThreads"
        " option.executionMode option.optLevel option.memoryPatternOptimization"
        " option.cpuArenaAllocator option.disablePerSessionThreads option.customOpLibrary"
        " option.ortDevice": _ONNX,
        "option.mapLocation option.extraFiles": _TORCH,
        "pooling": f"{_JAVA_EMBEDDING} option.pooler_config",
        "reranking": "it is of LMI's Java engines, which are not here; vLLM's rerankers answer at "
        "/rerank and /score with option.task=classify",
    },
}

_SWITCHES = frozenset({
    "bedrock_compat", "enable_prompt_adapter", "enable_lora_bias", "lmcache_auto_config",
    "enable_stateful_sessions", "multi_node", "use_stable_diffusion", "reranking", "load_in_8bit",
})  # fmt: skip
"""Refused options that are truth values; false has no effect."""
_VARIABLES = {
    "context_length_estimate": "NEURON_CONTEXT_LENGTH_ESTIMATE",
    "on_device_embedding": "NEURON_ON_DEVICE_EMBEDDING",
    "sequence_parallel": "NEURON_SEQUENCE_PARALLEL",
}
"""Options to bare variables that set them."""


def rows() -> tuple[AnyOption, ...]:
    """Return a row for each option that does nothing."""
    return (*_rows("ignored", _IGNORED), *_rows("refused", _REFUSED))


def _rows(
    status: Literal["ignored", "refused"], scopes: dict[str, dict[str, str]]
) -> Iterator[AnyOption]:
    for scope, reasons in scopes.items():
        for names, reason in reasons.items():
            yield from (_row(status, scope, name, reason) for name in names.split())


def _row(status: Literal["ignored", "refused"], scope: str, name: str, reason: str) -> AnyOption:
    return Option(
        name=name if scope in _WHOLE_KEYS else PREFIX + name,
        kind=BOOL if name in _SWITCHES else TEXT,
        scope=scope,
        env=(_VARIABLES[name],) if name in _VARIABLES else (),
        help=f"{status.capitalize()}: {reason}.",
        status=status,
        reason=reason,
    )


_WHOLE_KEYS = frozenset({"server", "other handlers"})
