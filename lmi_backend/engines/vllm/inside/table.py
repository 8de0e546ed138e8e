"""The table of the fast paths into vLLM, and of what this package cannot do without.

This module imports nothing of vLLM, so that documents and commands can read it.
"""

from __future__ import annotations

from typing import Final

from lmi_backend.engines.vllm.inside.entries import FastPath, Need

_OWN_STREAMS: Final = (
    "AsyncLLM.add_request", "AsyncLLM.output_processor", "AsyncLLM.engine_core",
    "AsyncMPClient.abort_requests_async", "OutputProcessor.add_request",
    "OutputProcessor.process_outputs", "OutputProcessor.propagate_error", "EngineCoreOutput",
    "FinishReason.STOP",
    "IncrementalDetokenizer.from_new_request", "IncrementalDetokenizer.update",
    "IncrementalDetokenizer.get_next_output_text", "IncrementalDetokenizer.num_output_tokens",
    "LogprobsProcessor.from_new_request", "LogprobsProcessor.update_from_output",
    "OpenAIServingChat.chat_completion_stream_generator", "RequestOutput", "CompletionOutput",
)  # fmt: skip
_RESUMPTION: Final = (
    "AsyncLLM.output_processor", "OutputProcessor.add_request", "OutputProcessor.process_outputs",
    "EngineCoreOutput", "EngineCoreRequest", "RequestOutputCollector.get_nowait",
    "LogprobsLists", "RequestState.logprobs_processor", "LogprobsProcessor.cumulative_logprob",
)  # fmt: skip
PATHS: Final = (
    FastPath(
        name="own_streams",
        purpose="answers made of the core's outputs without vLLM's objects for each token",
        names=_OWN_STREAMS,
        public_way="AsyncLLM.generate and the events of vLLM's server, as they come",
        cost="five to eight times the CPU of the worker a token",
    ),
    FastPath(
        name="fewer_counts",
        purpose="none of the counts that only the metrics page of vLLM's server shows",
        names=("AsyncLLM.logger_manager", "AsyncLLM.log_stats", "OutputProcessor.log_stats"),
        public_way="vLLM counts everything",
        cost="about a quarter more CPU a token",
    ),
    FastPath(
        name="waits",
        purpose="processes on a CPU that sleep while they wait for each other",
        names=("shm_broadcast.sched_yield", "shm_broadcast.SpinCondition?"),
        public_way="vLLM's processes wait in a loop",
        cost="on a CPU: half a core while it is idle, and long gaps on some kernels",
    ),
    FastPath(
        name="single_process",
        purpose="a core of one rank on a CPU that computes in its own process",
        names=(
            "UniProcExecutor",
            "OMPProcessManager.configure_omp_envs",
            "ParallelConfig.distributed_executor_backend",
            "ParallelConfig.world_size_across_dp",
        ),
        public_way="vLLM's own worker process",
        cost="on a CPU: one process more, half a GiB and a slower step",
    ),
    FastPath(
        name="adapter_table",
        purpose="one table of LoRA adapters for the engine and its server",
        names=("OpenAIServingModels.lora_requests",),
        public_way="the server's own table, told with the first request of each adapter",
        cost="an adapter is loaded twice",
    ),
    FastPath(
        name="resumption",
        purpose="requests that resume from tokens which another worker generated",
        names=_RESUMPTION,
        public_way="none for a request whose worker died: it fails with an error that says so",
        cost="a crash of a worker fails its streams",
    ),
    FastPath(
        name="forced_tokens",
        purpose="resumption of requests with a grammar or penalties, by a plugin in vLLM's core",
        names=("AdapterLogitsProcessor", "LogitsProcessor"),
        public_way="such requests resume only if they are greedy or have a seed",
        cost="a crash of a worker fails sampled streams with a grammar or penalties",
    ),
    FastPath(
        name="load",
        purpose="how many requests, tokens and adapters the engine has",
        names=(
            "StatLoggerBase",
            "OutputProcessor.get_num_unfinished_requests",
            "RequestState.lora_name",
            "RequestState.is_prefilling",
        ),
        public_way="the worker counts its own requests",
        cost="no metrics of KV cache, drafts and adapters; a hang is found by silence only",
    ),
    FastPath(
        name="defaults",
        purpose="sampling values of the model's own, where a request gives none",
        names=("ModelConfig.get_diff_sampling_param",),
        public_way="the model's generation_config.json, read by this package",
        cost="vLLM's arguments generation_config and override_generation_config change nothing",
    ),
    FastPath(
        name="lora_rows",
        purpose="the model itself next to its adapters, where LoRA runs on a CPU",
        names=(
            "PunicaWrapperCPU.add_lora_logits",
            "PunicaWrapperBase.sampler_indices",
            "PunicaWrapperBase.token_lora_indices",
            "async_tensor_h2d?",
        ),
        public_way="vLLM's code, whose engine may end",
        cost="on a CPU with LoRA: the model itself may answer as an adapter does, and log "
        "probabilities of two prompts at once end the engine",
    ),
    FastPath(
        name="seeded_steps",
        purpose="seeded requests on a CPU, whose prompt may be computed in several steps",
        names=("GPUModelRunner._bookkeeping_sync", "InputBatch.generators"),
        public_way="such requests are refused, unless they are greedy",
        cost="on a CPU: sampled requests with a seed are refused, as each may end the engine",
    ),
    FastPath(
        name="media",
        purpose="media that are fetched from listed hosts, whose addresses are looked at",
        names=(
            "MediaConnector.load_from_url",
            "MediaConnector.load_from_url_async",
            "HTTPConnection",
        ),
        public_way="no URL is fetched; data: URLs are read within vLLM's own bounds",
        cost="bodies with http: URLs of media are refused",
    ),
    FastPath(
        name="short_errors",
        purpose="errors that are cut before vLLM looks for paths in them",
        names=("sanitize_message",),
        public_way="vLLM's errors, as they are",
        cost="an error that quotes a long text may take long",
    ),
    FastPath(
        name="asked_name",
        purpose="answers that name their model as the client does",
        names=("OpenAIServingModels.model_name",),
        public_way="the first of the model's names in each answer",
        cost="bills and traces that go by the answer's name have another",
    ),
    FastPath(
        name="whole_tool_calls",
        purpose="whole answers that show of a cut tool call what streams show",
        names=("OpenAIServingChat.chat_completion_full_generator", "OpenAIServingChat.parser_cls?"),
        public_way="vLLM's whole answers, as they are",
        cost="a tool call that is cut is shown as text, and its finish reason may be tool_calls",
    ),
    FastPath(
        name="prefill",
        purpose="Anthropic's messages whose last one is the assistant's, which is continued",
        names=("AnthropicServingMessages.to_chat_completion_request",),
        public_way="vLLM's server, which begins a new message",
        cost="an answer does not continue what its client began",
    ),
)

_OF_RANKS: Final = (
    "InprocClient.get_output()", "InprocClient.add_request(request)",
    "InprocClient.abort_requests(request_ids)", "InprocClient.engine_core",
    "EngineCore.__init__(vllm_config executor_class log_stats=)", "EngineCore.scheduler",
    "EngineCore.batch_queue", "SchedulerInterface.has_requests()",
    "EngineCoreClient.make_async_mp_client", "EngineCoreOutput", "EngineCoreOutputs",
    "EngineCoreRequest", "Executor.get_class(vllm_config)",
    "ParallelConfig.distributed_executor_backend", "FinishReason.ABORT", "MsgpackDecoder",
    "MsgpackEncoder",
)  # fmt: skip
NEEDS: Final = (
    Need(
        name="engine",
        purpose="the engine",
        names=(
            "AsyncEngineArgs.create_engine_config(usage_context)",
            "AsyncEngineArgs.add_cli_args(parser)",
            "FlexibleArgumentParser",
            "AsyncLLM.from_vllm_config(vllm_config stat_loggers= enable_log_requests= "
            "disable_log_stats=)",
            "AsyncLLM.generate(prompt= sampling_params= request_id= lora_request= priority= "
            "trace_headers=)",
            "AsyncLLM.abort(request_id)",
            "AsyncLLM.check_health()",
            "AsyncLLM.shutdown()",
            "AsyncLLM.get_tokenizer()",
            "AsyncLLM.get_supported_tasks()",
            "AsyncLLM.model_config",
            "AsyncLLM.vllm_config",
            "AsyncLLM.errored",
            "UsageContext.ENGINE_CONTEXT",
            "SamplingParams",
            "RequestOutputKind.DELTA",
            "RequestOutputKind.FINAL_ONLY",
            "StructuredOutputsParams",
            "LoRARequest",
        ),
    ),
    Need(
        name="server",
        purpose="vLLM's HTTP server, which reads OpenAI's bodies",
        names=(
            "build_app(args= supported_tasks=? model_config=?)",
            "init_app_state(engine_client= vllm_config=? state= args= supported_tasks=?)",
            "make_arg_parser(parser)",
        ),
    ),
    Need(
        name="ranks",
        purpose="MPI mode: an engine core on each rank",
        names=_OF_RANKS,
    ),
    Need(name="nodes", purpose="several machines without MPI", names=("run_headless(args)",)),
)
"""`ranks` and `nodes` are needed only where they are used."""
