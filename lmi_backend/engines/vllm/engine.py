"""The engine implementation of vLLM."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import psutil

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines import tokens
from lmi_backend.engines.bodies import check_sampling
from lmi_backend.engines.prompts import encoder, longest_token, prompt_ids
from lmi_backend.engines.protocol import ChunkSink, DeltaSink, Engine
from lmi_backend.engines.vllm.chat_ids import chat_ids
from lmi_backend.engines.vllm.inside import (
    answers,
    compat,
    extra_arguments,
    fast_paths,
    gate,
    images,
    names,
    needs,
    public,
    seeded_steps,
    server_compat,
)
from lmi_backend.engines.vllm.inside.arguments import engine_args, is_rank
from lmi_backend.engines.vllm.inside.failures import translated
from lmi_backend.engines.vllm.inside.grammars import GrammarTrials
from lmi_backend.engines.vllm.inside.http_app import HttpApp
from lmi_backend.engines.vllm.inside.outputs import OutputReader
from lmi_backend.engines.vllm.inside.replay import resume_strategy_of
from lmi_backend.engines.vllm.inside.starting import attach, before_loading, turns_off_core_paths
from lmi_backend.engines.vllm.inside.stats import LastStats, capacity, read_stats
from lmi_backend.engines.vllm.lora import LoraAdapters
from lmi_backend.engines.vllm.newness import say_if_newer
from lmi_backend.engines.vllm.sampling import check_parameters, sampling_params
from lmi_backend.errors import (
    ConfigurationError,
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
        self._gate: gate.Gate | None = None
        self._starting: asyncio.Task[Capabilities] | None = None
        """The start of a spare, which waits at its gate."""
        self._tokenizer: Any = None
        self._http: HttpApp
        self._grammars: GrammarTrials
        self._num_requests = self._num_answered = 0
        self._max_model_len = self._vocabulary = self._longest_token = 0
        self._model_defaults: dict[str, Any] = {}
        self._last_stats = LastStats()
        self._capacity: dict[str, int] = {}
        self._ids = itertools.count()
        self._image_turns = asyncio.Semaphore(images.AT_ONCE)
        self._adapters = LoraAdapters(config.arguments.get("max_loras", 1))

    async def prepare(self) -> None:
        if is_rank():
            # Its core computes in this process.
            before_loading(self._config)
            await asyncio.to_thread(server_compat.http_server)
            return
        self._gate = gate.Gate()
        self._starting = asyncio.create_task(self._start_named())
        while not self._gate.is_reached:
            ended, _ = await asyncio.wait({self._starting}, timeout=_POLL_SECONDS)
            if ended:
                await self._starting
                raise ConfigurationError("this vLLM loads its model before it loads plugins")

    async def start(self) -> Capabilities:
        if self._gate is None or self._starting is None:
            return await self._start_named()
        self._gate.open()
        return await self._starting

    async def _start_named(self) -> Capabilities:
        with needs.naming():
            return await self._start()

    async def _start(self) -> Capabilities:
        before_loading(self._config)
        arguments = engine_args(self._config)
        check_parameters()
        if getattr(arguments, "enable_lora", False):
            self._adapters.check()
        # The thread blocks until the engine core has loaded the model.
        loading = asyncio.create_task(asyncio.to_thread(self._create, arguments))
        try:
            await _import_while(loading)
            self._engine = await loading
        except ValueError as error:
            raise ConfigurationError(f"vLLM refuses to start: {error}") from error
        compat.take_outputs(self._engine)
        self._tokenizer = await self._own_tokenizer()
        self._longest_token = longest_token(self._tokenizer)
        self._max_model_len = self._engine.model_config.max_model_len
        fast_paths.probe("load", "a config that tells the engine's capacity", self._read_capacity)
        self._vocabulary = needs.vocabulary(self._engine.model_config)
        self._grammars = GrammarTrials.of(self._engine, self._tokenizer, self._vocabulary)
        self._http = await HttpApp.create(
            self._engine,
            arguments,
            self._adapters,
            self._config,
            longest_token=self._longest_token,
            grammars=self._grammars,
        )
        if "generate" in await needs.supported_tasks(self._engine):
            await self._http.self_test(self._tokenizer).run()
        self._model_defaults = compat.default_sampling(self._engine)
        say_if_newer(names.vllm_version, fast_paths.states())
        version, longest = names.vllm_version, self._longest_token
        return Capabilities("vllm", version, self._max_model_len, longest)

    async def _own_tokenizer(self) -> Any:
        """Return the engine's; None where its user wants none: prompts are ids, then."""
        if getattr(self._engine.model_config, "skip_tokenizer_init", False):
            return None
        found = await needs.answer(self._engine, "get_tokenizer")
        compat.keep_end(found)
        return needs.checked(found, "AsyncLLM.get_tokenizer", "encode")

    def _create(self, arguments: Any) -> Any:
        try:
            engine = self._create_once(arguments)
        except (ValueError, LmiError):
            raise
        except Exception as error:
            if not turns_off_core_paths(error):
                raise
            engine = self._create_once(arguments)
        attach(engine)
        return engine

    def _create_once(self, arguments: Any) -> Any:
        create = partial(compat.create_engine, arguments, self._last_stats.loggers())
        if self._gate is not None:
            create = partial(create, on_config=self._gate.expect)
        if is_rank():
            # Only under MPI, and it imports torch's collectives.
            from lmi_backend.engines.vllm.inside.lockstep import LockstepClient  # noqa: PLC0415

            with compat.core_client(LockstepClient):
                return create()
        return create()

    def _read_capacity(self) -> None:
        self._capacity = capacity(self._engine.vllm_config)

    async def respond(self, request: HttpRequest, sink: ChunkSink) -> None:
        if request.path in TOKEN_PATHS:
            sink.take(
                await tokens.answer_tokens(
                    request,
                    self._tokenizer,
                    max_model_len=self._max_model_len,
                    longest=self._longest_token,
                    chat_ids=partial(chat_ids, self._http),
                )
            )
            return
        self._num_requests += 1
        try:
            await self._http.respond(request, sink)
        except Exception as error:
            raise translated(error) from error
        finally:
            self._num_requests -= 1

    async def generate(self, request: GenerateRequest, sink: DeltaSink) -> None:
        self._num_requests += 1
        try:
            await self._generate(request, sink)
        finally:
            self._num_requests -= 1
        self._num_answered += 1

    async def _generate(self, request: GenerateRequest, sink: DeltaSink) -> None:
        reader = OutputReader(self._tokenizer, request)
        own = fast_paths.is_on("own_streams")
        try:
            # Until vLLM has processed its images, which take much memory decoded.
            async with AsyncExitStack() as turn:
                if request.images:
                    turn.enter_context(images.charged())
                    await turn.enter_async_context(self._image_turns)
                arguments = await self._request_arguments(request)
                reader.sends_ids = self._config.sends_ids and bool(
                    resume_strategy_of(self._engine, arguments["params"])
                )
                adapter = await self._adapters.hold(self._engine, request.adapter)
                with adapter as arguments["lora_request"]:
                    await (answers if own else public).generate(
                        self._engine,
                        arguments,
                        reader,
                        sink,
                        continuation=request.continuation,
                        on_added=turn.aclose,
                    )
        except Exception as error:
            raise translated(error) from error

    async def _request_arguments(self, request: GenerateRequest) -> dict[str, Any]:
        """Return the arguments of `AsyncLLM.add_request`."""
        bounds = self._config.structure_bounds
        check_sampling(request.sampling, bounds)
        check_structures(request.sampling.extra.get("structured_outputs") or {}, bounds)
        params = sampling_params(request, self._model_defaults, self._vocabulary)
        extra_arguments.check(params)
        seeded_steps.check(params)
        await self._grammars.check(params)
        return {
            "params": params,
            "prompt": await self._prompt(request),
            "request_id": str(next(self._ids)),
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
            encoder(self._tokenizer),
            max_model_len=self._max_model_len,
            vocabulary=self._vocabulary,
            min_tokens=0,
            longest=self._longest_token,
        )
        return compat.prompt_of(ids)

    async def load_adapter(self, name: str, folder: str, *, preload: bool, pin: bool) -> None:
        await self._adapters.load(self._engine, name, folder, preload=preload, pin=pin)

    async def unload_adapter(self, name: str) -> None:
        await self._adapters.unload(self._engine, name)

    def stats(self) -> EngineStats:
        num_answered = self._num_answered + self._http.num_answered
        return read_stats(
            self._engine, self._last_stats, self._capacity, self._num_requests, num_answered
        )

    async def check_health(self) -> None:
        try:
            await needs.settled(self._engine.check_health())
        except names.EngineDeadError as error:
            raise translated(error) from error

    async def close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            await needs.settled(await asyncio.to_thread(engine.shutdown))


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
