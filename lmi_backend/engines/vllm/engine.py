"""What a worker of vLLM runs: the engine, a rank after the first, or a further machine."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import sys
import threading
from concurrent.futures import Future
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import psutil

from lmi_backend.clients.openai import RESETS
from lmi_backend.clients.spec import JSON
from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines import tokens
from lmi_backend.engines.bodies import check_sampling
from lmi_backend.engines.protocol import ChunkSink, DeltaSink, Engine, Rank
from lmi_backend.engines.tokens import encoder, longest_token, prompt_ids
from lmi_backend.engines.vllm import (
    answers,
    bodies,
    compat,
    fast_paths,
    images,
    names,
    own_arguments,
    requests,
    starting,
    vllm_server,
)
from lmi_backend.engines.vllm.fast_paths import say_if_newer
from lmi_backend.engines.vllm.grammars import GrammarTrials
from lmi_backend.engines.vllm.http_app import HttpApp, chat_ids
from lmi_backend.engines.vllm.lora import LoraAdapters
from lmi_backend.engines.vllm.processor import LastStats, read_stats
from lmi_backend.engines.vllm.requests import OutputReader, sampling_params, translated
from lmi_backend.engines.vllm.resume import resume_strategy_of
from lmi_backend.engines.vllm.starting import attach, engine_args, is_rank, prepare_processes
from lmi_backend.errors import ConfigurationError, EngineDeadError, RequestError, UnavailableError
from lmi_backend.generation import GenerateRequest, HttpChunk, HttpRequest
from lmi_backend.ipc.engine import Capabilities, EngineStats
from lmi_backend.options.signature import installed_version
from lmi_backend.structures import check_structures
from lmi_backend.tokenization import TOKEN_PATHS

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

_log = logging.getLogger(__name__)


_POLL_SECONDS = 0.1


class VllmEngine(Engine):
    """One AsyncLLM; it runs its core in processes of its own, or under MPI on every rank."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._engine: Any = None
        self._barrier: starting.Barrier | None = None
        self._starting: asyncio.Task[Capabilities] | None = None
        self._tokenizer: Any = None
        self._http: HttpApp
        self._grammars: GrammarTrials
        self._num_requests = self._num_answered = 0
        self._max_model_len = self._vocabulary = self._longest_token = 0
        self._model_defaults: dict[str, Any] = {}
        self._last_stats = LastStats()
        self._ids = itertools.count()
        self._image_turns = asyncio.Semaphore(images.AT_ONCE)
        self._adapters = LoraAdapters(config.arguments.get("max_loras", 1))

    async def prepare(self) -> None:
        if is_rank():
            # Its core computes in this process.
            prepare_processes(self._config)
            await asyncio.to_thread(vllm_server.import_server)
            return
        self._barrier = starting.Barrier()
        self._starting = asyncio.create_task(self._start_named())
        while not self._barrier.is_reached:
            ended, _ = await asyncio.wait({self._starting}, timeout=_POLL_SECONDS)
            if ended:
                await self._starting
                raise ConfigurationError("this vLLM loads its model before it loads plugins")

    async def start(self) -> Capabilities:
        if self._barrier is None or self._starting is None:
            return await self._start_named()
        self._barrier.open()
        return await self._starting

    async def _start_named(self) -> Capabilities:
        with compat.naming():
            return await self._start()

    async def _start(self) -> Capabilities:
        prepare_processes(self._config)
        arguments = engine_args(self._config)
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
        self._vocabulary = self._engine.model_config.get_vocab_size()
        self._grammars = GrammarTrials.of(self._engine, self._tokenizer, self._vocabulary)
        self._http = await HttpApp.create(
            self._engine,
            arguments,
            self._adapters,
            self._config,
            longest_token=self._longest_token,
            grammars=self._grammars,
        )
        if "generate" in await compat.answer_of(self._engine, "get_supported_tasks"):
            await self._http.self_test(self._tokenizer).run()
        self._model_defaults = self._engine.model_config.get_diff_sampling_param()
        say_if_newer(names.vllm_version)
        # The next plan is judged by it.
        threading.Thread(target=own_arguments.keep_if_unknown, daemon=True).start()
        version, longest = names.vllm_version, self._longest_token
        return Capabilities("vllm", version, self._max_model_len, longest)

    async def _own_tokenizer(self) -> Any:
        """Return the engine's; None where its user wants none: prompts are ids, then."""
        if getattr(self._engine.model_config, "skip_tokenizer_init", False):
            return None
        tokenizer = await compat.answer_of(self._engine, "get_tokenizer")
        return compat.checked(tokenizer, "AsyncLLM.get_tokenizer", "encode")

    def _create(self, arguments: Any) -> Any:
        create = partial(starting.create_engine, arguments, self._last_stats.loggers())
        if self._barrier is not None:
            create = partial(create, on_config=self._barrier.expect)
        if is_rank():
            # Only under MPI, and it imports torch's collectives.
            from lmi_backend.engines.vllm.ranks import LockstepClient  # noqa: PLC0415

            compat.use_core_client(LockstepClient)
        engine = create()
        attach(engine, is_counted=bool(self._config.front_end.get("enable_per_request_metrics")))
        return engine

    async def _reset(self, path: str) -> HttpChunk:
        """Empty a cache, by vLLM's method of the path's name."""
        headers = {"content-type": JSON}
        reset = getattr(self._engine, path.removeprefix("/"), None)
        if reset is None or is_rank():
            # The schedulers of ranks have to know the same. FastAPI answers so on no path.
            return HttpChunk(b'{"detail":"Not Found"}', is_last=True, status=404, headers=headers)
        if await compat.settled(reset()) is False:
            raise UnavailableError("running requests hold the cache")
        return HttpChunk(b'{"success":true}', is_last=True, headers=headers)

    async def respond(self, request: HttpRequest, sink: ChunkSink) -> None:
        if request.path in RESETS:
            sink.take(await self._reset(request.path))
            return
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
                    await (answers.generate if own else bodies.generate_publicly)(
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
        bounds = self._config.structure_bounds
        check_sampling(request.sampling, bounds)
        check_structures(request.sampling.extra.get("structured_outputs") or {}, bounds)
        params = sampling_params(request, self._model_defaults, self._vocabulary)
        requests.check_extra_arguments(params.extra_args)
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
        return read_stats(self._engine, self._last_stats, self._num_requests, num_answered)

    async def check_health(self) -> None:
        try:
            await compat.settled(self._engine.check_health())
        except names.EngineDeadError as error:
            raise translated(error) from error

    async def close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            await compat.settled(await asyncio.to_thread(engine.shutdown))


async def _import_while(loading: asyncio.Task[Any]) -> None:
    """Import vLLM's HTTP server while its core loads the model, which takes longer.

    Not before the core's process exists: one forked in the middle of an import could never end it.
    """
    this = psutil.Process()
    while not loading.done():
        if this.children():
            await asyncio.to_thread(vllm_server.import_server)
            return
        await asyncio.sleep(_POLL_SECONDS)


class VllmFollower(Rank):
    """A rank after the first: one engine core, in a thread, takes the steps that rank 0 takes."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._is_dead = False

    async def start(self) -> Capabilities:
        prepare_processes(self._config)
        arguments = engine_args(self._config)
        ready: Future[None] = Future()
        thread = threading.Thread(
            target=self._follow, args=(arguments, ready), name="lmi-lockstep", daemon=True
        )
        thread.start()
        try:
            await asyncio.wrap_future(ready)
        except ValueError as error:
            raise ConfigurationError(f"vLLM refuses to start: {error}") from error
        return Capabilities("vllm", names.vllm_version, 0)

    def _follow(self, arguments: Any, ready: Future[None]) -> None:
        # It imports torch's collectives.
        from lmi_backend.engines.vllm.ranks import follow  # noqa: PLC0415

        try:
            follow(arguments.create_engine_config(), ready)
        except BaseException as error:  # noqa: BLE001  raised where it is started
            if not ready.done():
                ready.set_exception(error)
            _log.exception("this rank's engine core died")
            self._is_dead = True

    async def check_health(self) -> None:
        if self._is_dead:
            raise EngineDeadError("this rank's engine core died")


_RETRY_SECONDS: Final = 0.5
_END_SECONDS: Final = 5.0
# A machine that loses its power says no goodbye: silence of 10 s, then three questions.
_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))


class VllmNode(Rank):
    """This machine's part of a model that spans several without Ray and MPI.

    The first machine has the engine. vLLM's own headless mode runs in a process of its own, as it
    wants a main thread. It does not notice when the first machine is gone; here that is seen.
    """

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._process: BaseProcess | None = None
        self.watch: asyncio.Task[None] | None = None

    async def start(self) -> Capabilities:
        import multiprocessing  # noqa: PLC0415  it makes a module of the program's

        # Ready at once: whether all have come together, the first machine knows.
        process = multiprocessing.get_context("spawn").Process(target=_run, args=(self._config,))
        process.start()
        self._process = process
        arguments = self._config.arguments
        self.watch = asyncio.create_task(
            outlive(str(arguments["master_addr"]), int(arguments["master_port"]))
        )
        return Capabilities("vllm", installed_version("vllm", sys.executable), 0)

    async def check_health(self) -> None:
        if self._process is not None and not self._process.is_alive():
            raise EngineDeadError(f"vLLM on this machine exited with {self._process.exitcode}")
        if self.watch is not None and self.watch.done():
            raise EngineDeadError("the model's first machine is gone; it is joined again")

    async def close(self) -> None:
        process, self._process = self._process, None
        if self.watch is not None:
            self.watch.cancel()
        if process is not None:
            process.terminate()
            await asyncio.to_thread(process.join, _END_SECONDS)


async def outlive(host: str, port: int) -> None:
    """Return when torch's store, which the first machine's engine keeps, was there and is gone."""
    while True:
        try:
            reader, writer = await asyncio.open_connection(host, port)
            break
        except OSError:
            await asyncio.sleep(_RETRY_SECONDS)
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in _KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, seconds)
    _log.info("joined the model at %s, port %d", host, port)
    try:
        # The store says nothing by itself.
        while await reader.read(1 << 10):
            pass
    except OSError as error:
        _log.info("the first machine cannot be reached: %s", error)
    finally:
        writer.close()


def _run(config: EngineConfig) -> None:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    prepare_processes(config)
    compat.run_headless(engine_args(config))
