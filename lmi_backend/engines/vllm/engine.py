"""The engine implementation of vLLM."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import msgspec
import psutil

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines import tokens
from lmi_backend.engines.bodies import check_sampling
from lmi_backend.engines.prompts import longest_token, prompt_ids
from lmi_backend.engines.protocol import ChunkSink, Engine, Sink
from lmi_backend.engines.vllm import compat, images, output_hook, server_compat
from lmi_backend.engines.vllm.arguments import engine_args, is_rank
from lmi_backend.engines.vllm.continuation import Continuations, Continued, current, way_of
from lmi_backend.engines.vllm.http_app import HttpApp
from lmi_backend.engines.vllm.lora import LoraAdapters
from lmi_backend.engines.vllm.new_tokens import NewTokens
from lmi_backend.engines.vllm.outputs import OutputReader
from lmi_backend.engines.vllm.sampling import sampling_params
from lmi_backend.engines.vllm.stats import LastStats, adapters_in_use, capacity
from lmi_backend.errors import (
    ConfigurationError,
    EngineDeadError,
    EngineError,
    LmiError,
    RequestError,
)
from lmi_backend.generation import GenerateRequest, HttpRequest
from lmi_backend.ipc.engine import Capabilities, EngineStats
from lmi_backend.structures import check_structures
from lmi_backend.tokenization import TOKEN_PATHS

_POLL_SECONDS = 0.1


class VllmEngine(Engine):
    """One AsyncLLM; it runs its core in processes of its own, or under MPI on every rank."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._engine: Any = None
        self._tokenizer: Any = None
        self._http: HttpApp
        self._max_model_len = self._vocabulary = self._longest_token = 0
        self._model_defaults: dict[str, Any] = {}
        self._last_stats = LastStats()
        self._capacity: dict[str, int] = {}
        self._ids = itertools.count()
        self._image_turns = asyncio.Semaphore(images.AT_ONCE)
        self._adapters = LoraAdapters(config.adapters)

    async def start(self) -> Capabilities:
        arguments = engine_args(self._config)
        # The thread blocks until the engine core has loaded the model.
        loading = asyncio.create_task(asyncio.to_thread(self._create, arguments))
        try:
            await _import_while(loading)
            self._engine = await loading
        except ValueError as error:
            raise ConfigurationError(f"vLLM refuses to start: {error}") from error
        compat.take_outputs(self._engine)
        self._tokenizer = self._engine.get_tokenizer()
        if asyncio.iscoroutine(self._tokenizer):
            self._tokenizer = await self._tokenizer
        self._longest_token = longest_token(self._tokenizer)
        self._max_model_len = self._engine.model_config.max_model_len
        self._capacity = capacity(self._engine.vllm_config)
        self._http = await HttpApp.create(
            self._engine,
            arguments,
            self._adapters,
            self._config,
            longest_token=self._longest_token,
        )
        self._vocabulary = self._engine.model_config.get_vocab_size()
        self._model_defaults = compat.default_sampling(self._engine)
        return Capabilities("vllm", compat.vllm_version, self._max_model_len)

    def _create(self, arguments: Any) -> Any:
        create = partial(compat.create_engine, arguments, self._last_stats.logger)
        if is_rank():
            # Only under MPI, and it imports torch's collectives.
            from lmi_backend.engines.vllm.lockstep import LockstepClient  # noqa: PLC0415

            with compat.core_client(LockstepClient):
                engine = create()
        else:
            engine = create()
        compat.count_less(engine)
        NewTokens(engine, compat.EngineCoreOutput(request_id="", new_token_ids=[])).attach()
        # What repeats tokens sees them first.
        Continuations(engine).attach()
        return engine

    async def respond(self, request: HttpRequest, sink: ChunkSink) -> None:
        if request.path in TOKEN_PATHS:
            sink.take(
                await tokens.answer_tokens(
                    request,
                    self._tokenizer,
                    max_model_len=self._max_model_len,
                    longest=self._longest_token,
                )
            )
            return
        await self._http.respond(request, sink)

    async def generate(self, request: GenerateRequest, sink: Sink) -> None:
        reader = OutputReader(self._tokenizer, request)
        if request.continuation is not None:
            current.set(Continued(request.continuation))
        try:
            # Until vLLM has processed its images, which take much memory decoded.
            async with AsyncExitStack() as turn:
                if request.images:
                    await turn.enter_async_context(self._image_turns)
                arguments = await self._request_arguments(request)
                reader.sends_ids = self._config.sends_ids and bool(
                    way_of(self._engine, arguments["params"])
                )
                await output_hook.generate(
                    self._engine, arguments, reader, sink, on_added=turn.aclose
                )
        except Exception as error:
            raise _translate(error) from error

    async def _request_arguments(self, request: GenerateRequest) -> dict[str, Any]:
        """Return the arguments of `AsyncLLM.add_request`."""
        bounds = self._config.structure_bounds
        check_sampling(request.sampling, bounds)
        check_structures(request.sampling.extra.get("structured_outputs") or {}, bounds)
        return {
            "params": sampling_params(request, self._model_defaults, self._vocabulary),
            "prompt": await self._prompt(request),
            "request_id": str(next(self._ids)),
            "lora_request": self._adapters.find(request.adapter),
            "priority": request.priority,
            "trace_headers": request.trace_headers or None,
        }

    async def _prompt(self, request: GenerateRequest) -> Any:
        if request.images:
            if not isinstance(request.prompt, str):
                raise RequestError("cannot go with token ids", field="image")
            decoded = await images.decode(request.images, self._engine.model_config)
            return {"prompt": request.prompt, "multi_modal_data": {"image": decoded}}
        ids = await prompt_ids(
            request,
            self._tokenizer.encode,
            max_model_len=self._max_model_len,
            vocabulary=self._vocabulary,
            min_tokens=0,
            longest=self._longest_token,
        )
        return compat.tokens_input(ids)

    async def load_adapter(self, name: str, folder: str, *, preload: bool, pin: bool) -> None:
        await self._adapters.load(self._engine, name, folder, preload=preload, pin=pin)

    async def unload_adapter(self, name: str) -> None:
        await self._adapters.unload(self._engine, name)

    def stats(self) -> EngineStats:
        # vLLM reports with each step; an idle engine makes none, so its last report is stale.
        processor = self._engine.output_processor
        unfinished = processor.get_num_unfinished_requests()
        last = self._last_stats.value
        waiting = min(last.waiting, unfinished)
        adapters: dict[str, tuple[str, ...]] = {}
        if unfinished and self._capacity["max_adapters"]:
            states = processor.request_states.values()
            adapters = adapters_in_use(states, holds_back=waiting > 0)
        return msgspec.structs.replace(
            last,
            # With those that its core has not got yet; if it never does, it hangs.
            running=unfinished - waiting,
            waiting=waiting,
            kv_cache_usage=last.kv_cache_usage if unfinished else 0.0,
            copies=self._last_stats.copies(compat.requests_of_copies(self._engine)),
            **self._capacity,
            **adapters,
        )

    async def check_health(self) -> None:
        try:
            await self._engine.check_health()
        except compat.VllmEngineDeadError as error:
            raise _translate(error) from error

    async def close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            await asyncio.to_thread(engine.shutdown)


async def _import_while(loading: asyncio.Task[Any]) -> None:
    """Import vLLM's HTTP server while its core loads the model, which takes longer.

    Not before the core's process exists: one forked in the middle of an import could never end it.
    """
    this = psutil.Process()
    while not loading.done():
        if this.children():
            await asyncio.to_thread(server_compat.http_server)
            return
        await asyncio.sleep(_POLL_SECONDS)


def _translate(error: Exception) -> LmiError:
    """Return our error for vLLM's, most specific first."""
    if isinstance(error, LmiError):
        return error
    if isinstance(error, compat.VllmEngineDeadError):
        return EngineDeadError(f"vLLM's engine core died: {error}")
    if isinstance(error, compat.EngineGenerateError):
        cause = error.__cause__
        if isinstance(cause, compat.VLLMClientError | ValueError):
            return RequestError(f"is refused by vLLM: {cause}", field="request")
        return EngineError(f"vLLM failed on this request: {cause or error}")
    if isinstance(error, compat.VLLMClientError | ValueError):
        return RequestError(f"is refused by vLLM: {error}", field="request")
    return EngineError(f"vLLM failed on this request: {type(error).__name__}: {error}")
