"""Every vLLM name this project uses, but for six modules' own.

Those are shared_memory.py, server_compat.py, media_compat.py, single_process.py, and
forced_tokens.py and waits.py, which run in vLLM's processes.

vLLM moves its modules between releases. These paths hold for 0.32 and, unless said, back to
0.11; when one moves, this file changes and no other.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, get_args

from vllm import __version__ as vllm_version
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.lora.request import LoRARequest
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, FinishReason
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.core_client import EngineCoreClient, InprocClient
from vllm.v1.engine.exceptions import EngineDeadError as VllmEngineDeadError
from vllm.v1.engine.exceptions import EngineGenerateError
from vllm.v1.executor.abstract import Executor
from vllm.v1.metrics.loggers import StatLoggerBase
from vllm.v1.outputs import LogprobsLists
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

from lmi_backend.engines.vllm import single_process

try:  # 0.20: moved out of vllm.inputs.data and renamed
    from vllm.inputs import tokens_input
except ImportError:
    from vllm.inputs.data import token_inputs as tokens_input

try:  # 0.12: renamed
    from vllm.sampling_params import StructuredOutputsParams
except ImportError:
    from vllm.sampling_params import GuidedDecodingParams as StructuredOutputsParams

try:  # 0.13: moved
    from vllm.utils.argparse_utils import FlexibleArgumentParser
except ImportError:
    from vllm.utils import FlexibleArgumentParser

try:  # appeared between 0.20 and 0.32; ValueError before
    from vllm.exceptions import VLLMClientError
except ImportError:
    VLLMClientError = ValueError

try:  # the same
    from vllm.exceptions import VLLMValidationError
except ImportError:
    VLLMValidationError = ValueError

__all__ = [
    "EXTERNAL_LAUNCHER",
    "AsyncEngineArgs",
    "AsyncLLM",
    "EngineCoreOutput",
    "EngineCoreRequest",
    "EngineGenerateError",
    "FlexibleArgumentParser",
    "InprocClient",
    "LoRARequest",
    "MsgpackDecoder",
    "MsgpackEncoder",
    "RequestOutputKind",
    "SamplingParams",
    "StatLoggerBase",
    "StructuredOutputsParams",
    "VLLMClientError",
    "VLLMValidationError",
    "VllmEngineDeadError",
    "abort",
    "argument_parser",
    "certain_logprobs",
    "core_client",
    "core_config",
    "count_less",
    "create_engine",
    "default_sampling",
    "engine_arguments",
    "failed_outputs",
    "import_reasoning_parser",
    "rank_executor",
    "request_state",
    "requests_of_copies",
    "run_headless",
    "running_state",
    "take_interval",
    "take_outputs",
    "tokens_input",
    "vllm_version",
]

EXTERNAL_LAUNCHER = "external_launcher"
"""vLLM's name of an executor whose ranks somebody else starts."""


def create_engine(arguments: AsyncEngineArgs, logger: Any) -> AsyncLLM:
    """Start the engine of these arguments; blocks until its core has loaded the model.

    Args:
        arguments: as vLLM's `AsyncLLM.from_engine_args` takes them.
        logger: makes the first one that gets the engine's stats.
    """
    config = arguments.create_engine_config(UsageContext.ENGINE_CONTEXT)
    with single_process.prepare(config, chosen=arguments.distributed_executor_backend):
        return AsyncLLM.from_vllm_config(
            config,
            stat_loggers=[logger],
            enable_log_requests=arguments.enable_log_requests,
            disable_log_stats=arguments.disable_log_stats,
        )


def count_less(engine: Any) -> None:
    """Let an AsyncLLM count only what its own loggers, the given first one, look at.

    Its further counts are for the metrics page of vLLM's server, and take a quarter of the front
    end's CPU a token (benchmarks/README.md).
    """
    loggers = getattr(engine.logger_manager, "stat_loggers", [])  # 0.13
    del loggers[1:]
    if engine.vllm_config.observability_config.otlp_traces_endpoint is None:
        engine.log_stats = engine.output_processor.log_stats = False


def take_outputs(engine: Any) -> None:
    """Have an AsyncLLM take the outputs of its core; called on the event loop.

    Its `add_request` does since 0.16, only its `generate` before.
    """
    engine._run_output_handler()


def request_state(engine: Any, queue: Any, request_id: str) -> Any:
    """Return what vLLM keeps of a running request; None if it asks for several answers."""
    own_id = getattr(queue, "request_id", request_id)  # 0.13: the engine's own
    return engine.output_processor.request_states.get(own_id)


def running_state(engine: Any, request_id: str) -> Any:
    """Return what vLLM keeps of a request of one answer, by the caller's id.

    None if it has ended, also if only its last output waits to be taken.
    """
    processor = engine.output_processor
    if hasattr(processor, "external_req_ids"):  # 0.13: the engine's own ids differ
        own_ids = processor.external_req_ids.get(request_id, ())
        request_id = own_ids[0] if len(own_ids) == 1 else ""
    state = processor.request_states.get(request_id)
    if state is None or state.queue is None:
        return None
    waiting = state.queue.output
    return None if isinstance(waiting, Exception) or getattr(waiting, "finished", False) else state


def take_interval(state: Any) -> tuple[int, list[int]]:
    """Have each output of a RequestState made that it is asked for; it streams deltas.

    Returns:
        How many tokens an output of its middle was to have, and the ids of those of which none was
        made yet.
    """
    interval: int = getattr(state, "stream_interval", 1)  # since 0.13
    if interval == 1:
        return 1, []
    state.stream_interval = 1
    return interval, state.detokenizer.output_token_ids[state.sent_tokens_offset :]


def certain_logprobs(ids: Sequence[int]) -> Any:
    """Return what a core says of tokens that it was certain of, and names no other for."""
    import numpy as np  # noqa: PLC0415  vLLM's processes have it

    count = len(ids)
    tokens = np.array(ids, np.int32).reshape(count, 1)
    return LogprobsLists(tokens, np.zeros((count, 1), np.float32), np.ones(count, np.int32))


def requests_of_copies(engine: Any) -> dict[int, int]:
    """Return how many requests each copy of a data-parallel engine has; none where one copy runs.

    None before 0.32 either, which counts them for its own choice of a copy.
    """
    core = engine.engine_core
    counts = getattr(core, "engine_inflight", None)
    if counts is None:
        return {}
    copies = zip(core.engine_ranks_managed, core.core_engines, strict=False)
    return {number: counts[identity] for number, identity in copies}


async def abort(engine: Any, queue: Any, request_id: str) -> None:
    """End the request whose outputs a queue collects; None if it was still being added."""
    if hasattr(queue, "request_id"):  # 0.13: the engine's own id differs from the caller's
        await engine.abort(queue.request_id, internal=True)
    else:
        await engine.abort(request_id)


def engine_arguments() -> dict[str, bool]:
    """Return the arguments that AsyncEngineArgs takes, and whether each may be None."""
    fields = dataclasses.fields(AsyncEngineArgs)
    return {field.name: type(None) in get_args(field.type) for field in fields}


def argument_parser() -> argparse.ArgumentParser:
    """Return vLLM's own command-line parser of engine arguments."""
    parser: argparse.ArgumentParser = AsyncEngineArgs.add_cli_args(
        FlexibleArgumentParser(add_help=False, exit_on_error=False)
    )
    return parser


def import_reasoning_parser(plugin: str) -> None:
    """Make the parsers of a user's file known, which vLLM does only in its own server."""
    from vllm.reasoning import ReasoningParserManager  # noqa: PLC0415

    ReasoningParserManager.import_reasoning_parser(plugin)


def core_config(arguments: AsyncEngineArgs) -> Any:
    """Return the VllmConfig of an engine core."""
    return arguments.create_engine_config()


def rank_executor(vllm_config: Any) -> Any:
    """Return the class of the executor of a rank that mpirun started.

    On a CPU, 0.11 to 0.16 have put vLLM's own processes in its place when they made the config.
    """
    vllm_config.parallel_config.distributed_executor_backend = EXTERNAL_LAUNCHER
    return Executor.get_class(vllm_config)


@contextmanager
def core_client(client: Any) -> Iterator[None]:
    """Let each AsyncLLM that is made meanwhile speak to its core through another class."""
    before = EngineCoreClient.make_async_mp_client
    EngineCoreClient.make_async_mp_client = staticmethod(client)
    try:
        yield
    finally:
        EngineCoreClient.make_async_mp_client = staticmethod(before)


def run_headless(arguments: Any) -> None:
    """Run the part of a machine after the first one (0.12 and later), until it ends."""
    from vllm.entrypoints.cli.serve import run_headless as run  # noqa: PLC0415  brings the server

    fields = {each.name: getattr(arguments, each.name) for each in dataclasses.fields(arguments)}
    run(argparse.Namespace(**{"api_server_count": 0, "reasoning_parser_plugin": ""} | fields))


def failed_outputs(request_id: str) -> Any:
    """Return the output of a request that a core could not take."""
    reason = getattr(FinishReason, "ERROR", FinishReason.ABORT)
    output = EngineCoreOutput(request_id=request_id, new_token_ids=[], finish_reason=reason)
    return EngineCoreOutputs(outputs=[output])


def default_sampling(engine: Any) -> dict[str, Any]:
    """Return the sampling values of the model's generation_config.json that differ from vLLM's."""
    model_config = engine.model_config
    defaults: dict[str, Any] = model_config.get_diff_sampling_param()
    return defaults
