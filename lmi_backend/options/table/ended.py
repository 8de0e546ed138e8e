"""Options that do nothing here: each is ignored, with the reason, or refused, with the way out.

Ignored: leaving it out changes no answer. Refused: the user would get something else than asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from lmi_backend.options.kinds import BOOL, TEXT
from lmi_backend.options.option import PREFIX, AnyOption, Option

if TYPE_CHECKING:
    from collections.abc import Iterator

_TRITON_HTTP = "Triton's own HTTP server is used"
_TRITON_LOADS = "Triton loads what its repository holds; convert and serve read it"
_NO_JVM = "there is no Java server here"
_V1 = "vLLM no longer has it and schedules by itself"

_SCHEDULER = "batching is continuous; LMI's old scheduler needed it"
_CONFIG_JSON = "the model's config.json says it"
_CONVERSION = "it concerns conversion by LMI's own toolkit"
_NEURON = "Transformers-NeuronX is retired, and optimum-neuron decides it itself"

_IGNORED: dict[str, dict[str, str]] = {
    "common": {
        "modelName": "the Triton model's folder names the model",
        "model_dir": "it is the folder of serving.properties",
        "device_id": "devices are chosen by the plan",
        "use_passive_workers": "only rank 0 gets requests",
        "waiting_steps": "no engine reads it any more",
        "input_formatter": "LMI sets it itself, from a model.py",
        "max_new_tokens": "LMI never read it; set max_new_tokens in the request",
        "enable_venv": "name the worker's interpreter with option.pythonExecutable",
    },
    "server": {
        "max_batch_delay": "continuous batching does not wait to fill a batch",
        "option.max_batch_delay": "continuous batching does not wait to fill a batch",
        "max_idle_time": "the number of workers is fixed",
        "option.max_idle_time": "the number of workers is fixed",
        "log_request_metric": "Triton's /metrics has the figures",
        "log_model_metric": "Triton's /metrics has the figures",
        "metrics_aggregation": "Triton's /metrics has the figures",
        "metric_dimension": "metrics are labelled with the Triton model",
        "application": _NO_JVM,
        "batchifier": _NO_JVM,
        "inference_address": _TRITON_HTTP,
        "management_address": _TRITON_HTTP,
        "cluster_address": "there is no listener for other nodes",
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
        "wait_model_loading": "Triton's --exit-on-error and --strict-readiness say it",
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
        "calculate_kv_scales": _V1,
        "max_num_partial_prefills": _V1,
        "max_long_partial_prefills": _V1,
        "max_prompt_adapters": "vLLM has no prompt adapters any more",
        "max_prompt_adapter_token": "vLLM has no prompt adapters any more",
        "quantization_param_path": "vLLM reads the scales from the checkpoint",
        "guided_decoding_disable_fallback": "vLLM no longer falls back",
        "max_seq_len_to_capture": "use option.cudagraph_capture_sizes",
        "max_context_len_to_capture": "use option.cudagraph_capture_sizes",
    },
    "speculative": {
        "speculative_disable_mqa_scorer": _V1,
        "disable_logprobs_during_spec_decoding": _V1,
        "speculative_disable_by_batch_size": _V1,
        "spec_decoding_acceptance_method": _V1,
        "typical_acceptance_sampler_posterior_threshold": _V1,
        "typical_acceptance_sampler_posterior_alpha": _V1,
    },
    "sessions": {
        "sessions_path": "sessions are not served yet",
        "sessions_expiration": "sessions are not served yet",
    },
    "chat": {"enable_reasoning": "option.reasoning_parser alone turns it on"},
    "lmi-dist": {
        "speculative_telemetry": "nothing is reported to SageMaker",
        "paged_attention": "it is always on",
    },
    "transformers": {
        "is_peft_model": "adapter_config.json says it",
        "enable_streaming": "the request says whether to stream",
        "max_sparsity": _SCHEDULER,
        "max_splits": _SCHEDULER,
        "multi_gpu": _SCHEDULER,
        "image_placeholder_token": "the model's chat template has it",
    },
    "trtllm": {
        "auto_parallel": "TensorRT-LLM no longer has it",
        "auto_parallel_world_size": "TensorRT-LLM no longer has it",
        "use_custom_all_reduce": "TensorRT-LLM chooses; option.allreduce_strategy overrides",
        "multi_block_mode": "it is always on",
        "multi_query_mode": _CONFIG_JSON,
        "baichuan_model_version": _CONFIG_JSON,
        "chatglm_model_version": _CONFIG_JSON,
        "gpt_model_version": _CONFIG_JSON,
        "rotary_base": _CONFIG_JSON,
        "rotary_dim": _CONFIG_JSON,
        "rotary_scaling_type": _CONFIG_JSON,
        "rotary_scaling_factor": _CONFIG_JSON,
        "logits_dtype": "it concerns the building of T5 engines by LMI's own toolkit",
        "trtllm_checkpoint_path": _CONVERSION,
        "num_checkpoint_workers": _CONVERSION,
        "num_engine_workers": _CONVERSION,
        "load_by_shard": _CONVERSION,
    },
    "deepspeed": dict.fromkeys(
        (
            "enable_cuda_graph",
            "triangular_masking",
            "return_tuple",
            "training_mp_size",
            "deepspeed_config_path",
            "save_mp_checkpoint_path",
        ),
        "it tunes DeepSpeed's kernels; the model runs on Transformers",
    ),
    "neuronx": {
        "unroll": _NEURON,
        "load_split_model": _NEURON,
        "group_query_attention": _NEURON,
        "model_loader": "optimum-neuron is the only loader",
        "rolling_batch_strategy": "batching is continuous",
        "fuse_mlp": _NEURON,
        "fused_rmsnorm_qkv": _NEURON,
        "qkv_tiling": _NEURON,
        "weight_tiling": _NEURON,
        "mlp_out_weight_transpose": _NEURON,
        "attention_layout": _NEURON,
        "collectives_layout": _NEURON,
        "cache_layout": _NEURON,
        "partition_schema": _NEURON,
        "all_reduce_dtype": _NEURON,
        "cast_logits_dtype": _NEURON,
        "sequence_parallel_norm_threshold": _NEURON,
        "shard_over_sequence": _NEURON,
        "compilation_worker_count": _NEURON,
        "neuron_cc_pipeline_factor": _NEURON,
        "neuron_quant": _NEURON,
    },
    "partition": dict.fromkeys(
        (
            "save_mp_checkpoint_path",
            "fp8_scheme",
            "fp8_ignore",
            "fp8_activation_scheme",
            "fp8_ignore_patterns",
            "fp8_kv_cache_quant_targets",
            "awq_zero_point",
            "awq_weight_bit_width",
            "awq_mm_version",
            "awq_ignore_layers",
            "partition_handler",
        ),
        "only LMI's partition command reads it, which writes a checkpoint; nothing does at serving",
    ),
    "adapters": {
        "lora_extra_vocab_size": "vLLM reads it from the adapter",
        "long_lora_scaling_factors": "vLLM no longer has it",
    },
}

_SESSIONS = "sessions are not served yet"
_NO_JAVA = "it names a Java class"
_SKLEARN = "scikit-learn and XGBoost models are not served"
_ONNX = "Triton's own onnxruntime backend runs ONNX models"
_TORCH = "Triton's own pytorch backend runs TorchScript models"
_IMAGES = "images are not generated here"
_EMBEDDINGS = "embeddings are not served yet"
_FORK = "it needs AWS's own fork of DeepSpeed"

_REFUSED: dict[str, dict[str, str]] = {
    "common": {"bedrock_compat": "Bedrock's bodies are not served yet"},
    "server": {
        "translatorFactory": _NO_JAVA,
        "translator": _NO_JAVA,
        "model_url_pattern": "requests cannot load models",
    },
    "vllm": {
        "enable_prompt_adapter": "vLLM has no prompt adapters any more",
        "rope_scaling": 'use option.hf_overrides={"rope_parameters": {...}}',
        "rope_theta": 'use option.hf_overrides={"rope_parameters": {...}}',
        "override_neuron_config": "use option.additional_config",
        "preloaded_model": "it was never an option for users",
        "qlora_adapter_name_or_path": "vLLM no longer has it; use option.enable_lora",
    },
    "adapters": {"enable_lora_bias": "vLLM no longer loads biases of adapters"},
    "lmcache": {"lmcache_auto_config": "use option.kv_transfer_config"},
    "sessions": {"enable_stateful_sessions": _SESSIONS, "sessions_s3url": _SESSIONS},
    "deepspeed": {
        "quantize": f"{_FORK}; vLLM quantises too",
        "smoothquant_alpha": _FORK,
        "checkpoint": "DeepSpeed's own checkpoints are not read; use option.model_id",
    },
    "neuronx": {
        "multi_node": "a model over several Neuron nodes is not served",
        "height": _IMAGES,
        "width": _IMAGES,
        "num_images_per_prompt": _IMAGES,
        "use_auth_token": _IMAGES,
        "use_stable_diffusion": _IMAGES,
    },
    "other handlers": {
        "option.model_format": _SKLEARN,
        "option.trust_insecure_model_files": _SKLEARN,
        "option.skops_trusted_types": _SKLEARN,
        "option.default_accept": _SKLEARN,
        "option.optimization": _ONNX,
        "option.interOpNumThreads": _ONNX,
        "option.intraOpNumThreads": _ONNX,
        "option.executionMode": _ONNX,
        "option.optLevel": _ONNX,
        "option.memoryPatternOptimization": _ONNX,
        "option.cpuArenaAllocator": _ONNX,
        "option.disablePerSessionThreads": _ONNX,
        "option.customOpLibrary": _ONNX,
        "option.ortDevice": _ONNX,
        "option.mapLocation": _TORCH,
        "option.extraFiles": _TORCH,
        "pooling": _EMBEDDINGS,
        "reranking": _EMBEDDINGS,
        "normalize": _EMBEDDINGS,
    },
}

_SWITCHES = frozenset(
    {
        "bedrock_compat",
        "enable_prompt_adapter",
        "enable_lora_bias",
        "lmcache_auto_config",
        "enable_stateful_sessions",
        "multi_node",
        "use_stable_diffusion",
    }
)
"""Refused options that are truth values: false asks for nothing."""


def rows() -> tuple[AnyOption, ...]:
    """Return a row for each ended option."""
    return (*_rows("ignored", _IGNORED), *_rows("refused", _REFUSED))


def _rows(
    status: Literal["ignored", "refused"], scopes: dict[str, dict[str, str]]
) -> Iterator[AnyOption]:
    for scope, names in scopes.items():
        for name, reason in names.items():
            is_switch = name in _SWITCHES
            yield Option(
                name=name if scope in _WHOLE_KEYS else PREFIX + name,
                kind=BOOL if is_switch else TEXT,
                default=False if is_switch else "",
                scope=scope,
                help=f"{status.capitalize()}: {reason}.",
                status=status,
                reason=reason,
                harmless=(False,) if is_switch else (),
            )


_WHOLE_KEYS = frozenset({"server", "other handlers"})
