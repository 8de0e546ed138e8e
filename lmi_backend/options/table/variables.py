"""Environment variables of LMI and its images that set no option."""

from __future__ import annotations

from typing import Final

from lmi_backend.options.spec import Status

_WORKER = Status("mapped", "environment of the worker")
_NO_JVM = Status("ignored", "there is no Java server here")
_NO_CACHE = Status("ignored", "results are not cached")
_NODES = Status("mapped", "used as hosts, in MPI mode")
_SIZE = Status("ignored", "serve --max-body says it, for the front end")
_NEURON = Status("ignored", "Transformers-NeuronX is retired, and vllm-neuron decides it itself")
_SECURE = Status("refused", "secure mode's controls are not enforced yet")


_TLS = Status("refused", "serve and frontend have --tls-certificate and --tls-key")
_GATEWAY = Status("refused", "one front end and Triton serve HTTP and gRPC")
_OMNI = Status("refused", "vLLM-Omni is not served here")
_LISTENER = Status("ignored", "it is of vLLM's own server; the front end and Triton listen here")


def _doorless(*paths: str) -> Status:
    verb = "is" if len(paths) == 1 else "are"
    return Status("ignored", f"no effect: {', '.join(paths)} {verb} not served")


_FLAGS: Final[dict[str, Status]] = {
    "host port grpc_port uds root_path uvicorn_log_level disable_uvicorn_access_log"
    " disable_access_log_for_endpoints disable_fastapi_docs enable_offline_docs"
    " h11_max_incomplete_event_size h11_max_header_count allow_credentials allowed_origins"
    " allowed_methods allowed_headers enable_request_id_headers api_server_count"
    " disable_frontend_multiprocessing": _LISTENER,
    "api_key": Status("refused", "serve and frontend have --api-keys"),
    "ssl_keyfile ssl_certfile ssl_ca_certs ssl_cert_reqs ssl_ciphers enable_ssl_refresh": _TLS,
    "middleware": Status("refused", "code in vLLM's own server is not run"),
    "config": Status("refused", "write what that file has as option.… lines"),
    "grpc headless": _GATEWAY,
    "omni stage_init_timeout": _OMNI,
    "enable_sleep_mode sleep_mode_backend sleep_mode_offload_cudagraph"
    " sleep_preserve_parameter_names": _doorless("/sleep", "/wake_up"),
    "enable_server_load_tracking": Status("ignored", "GET /load is served without it"),
    "profiler_config": _doorless("/start_profile", "/stop_profile"),
    "enable_fault_tolerance fault_tolerance_config": _doorless("/fault_tolerance/apply"),
    "weight_transfer_config": _doorless("/init_weight_transfer_engine", "/update_weights"),
    "enable_elastic_ep elastic_ep_max_dp_size": _doorless("/scale_elastic_ep"),
    "cohere_is_reasoning_model cohere_format": _doorless("/cohere/v2/chat"),
    "kv_cache_metrics kv_cache_metrics_sample show_hidden_metrics_for_version": Status(
        "ignored", "no effect: vLLM's own page of metrics is not served"
    ),
}
SERVER_FLAGS: Final = {name: status for names, status in _FLAGS.items() for name in names.split()}
"""Flag of vLLM's own server, as it is written as an option, to what becomes of it.

Those that keep somebody out, or run code, are refused: none may be left out in silence.
"""


def _image() -> dict[str, Status]:
    """Return what becomes of these flags as AWS's vLLM images and vLLM itself spell them."""
    images = {f"SM_VLLM_{name.upper()}": status for name, status in SERVER_FLAGS.items()}
    # vLLM reads its key of one, and has variables of other meanings that are named as flags are.
    refused = [name.upper() for name, each in SERVER_FLAGS.items() if each.word == "refused"]
    return images | {f"VLLM_{name}": images[f"SM_VLLM_{name}"] for name in refused}


# Names, with blanks between them, to what becomes of each.
_VARIABLES: Final[dict[str, Status]] = {
    "SERVING_FEATURES": Status("mapped", "engine, when nothing else names it"),
    "SERVING_LOAD_MODELS": Status("mapped", "engine and devices of the folders it names"),
    "SAGEMAKER_BIND_TO_PORT": Status("mapped", "port of the front end"),
    "SAGEMAKER_ENABLE_LOAD_AWARE": Status("ignored", "SageMaker's own router is not here"),
    "SERVING_DOWNLOAD_DIR DJL_CACHE_DIR": Status("mapped", "folder for models from S3"),
    "CUDA_VISIBLE_DEVICES": Status("mapped", "devices that workers are given"),
    "OMP_NUM_THREADS": _WORKER,
    "NO_OMP_NUM_THREADS": Status("ignored", "OMP_NUM_THREADS has no default here"),
    "PYTHONPATH MASTER_ADDR HF_TOKEN HF_HOME LMCACHE_CONFIG_FILE LMCACHE_MAX_LOCAL_CPU_SIZE"
    " LMCACHE_MAX_LOCAL_DISK_SIZE LMCACHE_LOCAL_DISK LMCACHE_ENABLE_LAZY_MEMORY_ALLOCATOR"
    " LMCACHE_EXTRA_CONFIG": _WORKER,
    "DJL_LEADER_ADDR DJL_WORKER_ADDR_FORMAT LWS_LEADER_ADDR": _NODES,
    "NEURON_SHARD_OVER_SEQUENCE NEURON_COMPILATION_WORKER_COUNT NEURON_MULTI_NODE"
    " NEURON_CC_PIPELINE_FACTOR NEURON_QUANT": _NEURON,
    "SERVING_HEALTH_CHECK_OVERRIDE SAGEMAKER_HEALTH_CHECK_OVERRIDE": Status(
        "ignored", "Triton answers health checks"
    ),
    "SERVING_OPTS JAVA_OPTS": _NO_JVM,
    "DJL_VENV_DIR": Status("ignored", "name the interpreter with option.pythonExecutable"),
    "MODEL_SERVER_HOME": _NO_JVM,
    "ARGS_*": Status("ignored", "it is an argument of a Java translator"),
    "SAGEMAKER_MULTI_MODEL": Status("ignored", "Triton serves several models at once"),
    "SAGEMAKER_MAX_REQUEST_SIZE SAGEMAKER_MAX_PAYLOAD_IN_MB": _SIZE,
    "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": Status("ignored", "each request chooses its format"),
    "SAGEMAKER_SECURE_MODE": _SECURE,
    "SAGEMAKER_SECURITY_CONTROLS SAGEMAKER_UNTRUSTED_CHANNELS": Status(
        "ignored", "only secure mode reads it"
    ),
    "ALLOW_REQUEST_HANDLER_OVERRIDE": Status("ignored", "requests cannot name a handler"),
    "ENABLE_ADAPTERS_PREVIEW": Status("ignored", "adapters are no longer a preview"),
    "SERVING_BACKPORT_FOR_NON_STREAMING_HTTP_ERROR_CODES": Status(
        "ignored", "errors always have their own code"
    ),
    "SERVING_CACHE_MULTITENANT SERVING_CACHE_BATCH SERVING_MEMORY_CACHE_CAPACITY": _NO_CACHE,
    "LMI_DEBUG_NSYS_ENABLED": Status("ignored", "start the server under nsys yourself"),
    "SM_NEO_EXECUTION_CONTEXT": Status("refused", "SageMaker Neo jobs are not run here"),
    "DJL_PYTHON_PROFILING DJL_PYTHON_PROFILING_TOP_OBJ": Status(
        "ignored", "use py-spy on the worker"
    ),
    "SERVING_ROLLING_BATCH_BUFFER": Status(
        "ignored", "option.stream_interval and option.stream_flush_ms say when tokens are sent"
    ),
    **_image(),
    "VLLM_SERVER_DEV_MODE": _doorless("/sleep", "/collective_rpc", "/update_weights"),
    "VLLM_USE_RUST_FRONTEND VLLM_RUST_FRONTEND_PATH VLLM_HTTP_TIMEOUT_KEEP_ALIVE"
    " VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": _LISTENER,
    "VLLM_ENABLE_COHERE_API": _doorless("/cohere/v2/chat"),
    "SM_SGLANG_*": Status("refused", "SGLang is not served here; vLLM takes most of its models"),
    "SM_TELEMETRY_LOG_REV_2022_12": Status("ignored", "nothing is reported to SageMaker"),
}
VARIABLES: Final = {name: status for names, status in _VARIABLES.items() for name in names.split()}
"""Name, or the beginning of one before *, to what becomes of it."""
