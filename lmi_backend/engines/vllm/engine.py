"""The vLLM adapter."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import psutil

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.vllm import compat
from lmi_backend.engines.vllm.adapters import Adapters
from lmi_backend.engines.vllm.arguments import engine_args
from lmi_backend.engines.vllm.direct import hand_on
from lmi_backend.engines.vllm.group import is_rank
from lmi_backend.engines.vllm.http_app import HttpApp
from lmi_backend.engines.vllm.outputs import OutputReader
from lmi_backend.engines.vllm.placement import keep_cores_apart
from lmi_backend.engines.vllm.prompts import image_prompt
from lmi_backend.engines.vllm.sampling import sampling_params
from lmi_backend.engines.vllm.stats import LastStats
from lmi_backend.errors import (
    ConfigurationError,
    EngineDeadError,
    EngineError,
    LmiError,
    RequestError,
)
from lmi_backend.generation import Delta, GenerateRequest, HttpChunk, HttpRequest
from lmi_backend.ipc.engine import Capabilities, EngineStats
from lmi_backend.structures import check_structures

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmi_backend.engines.protocol import Sink

# Characters above which a prompt is tokenised in a thread; below, the hop costs more.
_LONG_PROMPT = 4096
_POLL_SECONDS = 0.1


class VllmEngine:
    """One AsyncLLM; it runs its core in processes of its own, or under MPI on every rank."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._engine: Any = None
        self._tokenizer: Any = None
        self._http: Any = None
        self._max_model_len = self._vocabulary = 0
        self._model_defaults: dict[str, Any] = {}
        self._last_stats = LastStats()
        self._ids = itertools.count()
        self._adapters = Adapters(config.adapters)

    async def start(self) -> Capabilities:
        """See `Engine`."""
        arguments = engine_args(self._config)
        # The thread blocks until the engine core has loaded the model.
        loading = asyncio.create_task(asyncio.to_thread(self._create, arguments))
        try:
            await _import_while(loading)
            self._engine = await loading
        except ValueError as error:
            message = f"vLLM refuses to start: {error}"
            raise ConfigurationError(message) from error
        self._tokenizer = self._engine.get_tokenizer()
        if asyncio.iscoroutine(self._tokenizer):
            self._tokenizer = await self._tokenizer
        self._max_model_len = self._engine.model_config.max_model_len
        self._http = await HttpApp.create(self._engine, arguments, self._adapters, self._config)
        self._vocabulary = self._engine.model_config.get_vocab_size()
        self._model_defaults = compat.default_sampling(self._engine)
        return Capabilities(
            "vllm", compat.vllm_version, self._max_model_len, calls=True, adapters=True
        )

    def _create(self, arguments: Any) -> Any:
        create = partial(
            compat.AsyncLLM.from_engine_args, arguments, stat_loggers=[self._last_stats.logger]
        )
        if is_rank():
            # Only under MPI, and it imports torch's collectives.
            from lmi_backend.engines.vllm.lockstep import LockstepClient  # noqa: PLC0415

            with compat.core_client(LockstepClient):
                engine = create()
        else:
            engine = create()
        compat.count_less(engine)
        keep_cores_apart()
        return engine

    async def call(self, call: HttpRequest) -> AsyncGenerator[HttpChunk, None]:
        """See `HttpEngine`."""
        async with aclosing(self._http.call(call)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        """See `Engine`."""
        read = OutputReader(self._tokenizer, request)
        try:
            asked = await self._ask(request)
            async with aclosing(read.stream(self._engine.generate(**asked))) as deltas:
                async for delta in deltas:
                    yield delta
        except Exception as error:
            raise _translate(error) from error

    async def hand_on(self, request: GenerateRequest, sink: Sink) -> None:
        """See `DirectEngine`."""
        read = OutputReader(self._tokenizer, request)
        try:
            asked = await self._ask(request)
            asked["params"] = asked.pop("sampling_params")
            await hand_on(self._engine, asked, partial(read.hand_on, take=sink.take), sink)
        except Exception as error:
            raise _translate(error) from error

    async def _ask(self, request: GenerateRequest) -> dict[str, Any]:
        """Return the arguments of `AsyncLLM.generate`."""
        bounds = self._config.structure_bounds
        check_structures(request.sampling.extra.get("structured_outputs") or {}, bounds)
        return {
            "sampling_params": sampling_params(request, self._model_defaults),
            "prompt": await self._prompt(request),
            "request_id": str(next(self._ids)),
            "lora_request": self._adapters.find(request.adapter),
            "priority": request.priority,
            "trace_headers": request.trace_headers or None,
        }

    async def _prompt(self, request: GenerateRequest) -> Any:
        if request.images:
            return image_prompt(request, self._engine.model_config)
        ids = await self._tokenize(request.prompt)
        if (keep := request.sampling.truncate_prompt_tokens) is not None:
            ids = ids[-keep:]
        if len(ids) >= self._max_model_len:
            accepted = f"fewer than {self._max_model_len}, to leave room for an answer"
            raise RequestError(f"has {len(ids)} tokens", field="prompt", accepted=accepted)
        return compat.tokens_input(list(ids))

    async def _tokenize(self, prompt: str | tuple[int, ...]) -> Any:
        if isinstance(prompt, tuple):
            if unknown := [number for number in prompt if not 0 <= number < self._vocabulary]:
                accepted = f"0 to {self._vocabulary - 1}"
                problem = f"has token id {unknown[0]}"
                raise RequestError(problem, field="prompt", accepted=accepted)
            return prompt
        if len(prompt) > _LONG_PROMPT:
            return await asyncio.to_thread(self._tokenizer.encode, prompt)
        return self._tokenizer.encode(prompt)

    async def load_adapter(self, name: str, folder: str, *, preload: bool, pin: bool) -> None:
        """See `LoraEngine`."""
        await self._adapters.load(self._engine, name, folder, preload=preload, pin=pin)

    async def unload_adapter(self, name: str) -> None:
        """See `LoraEngine`."""
        await self._adapters.unload(self._engine, name)

    def stats(self) -> EngineStats:
        """See `Engine`."""
        # vLLM reports with each step; an idle engine makes none, so its last report is stale.
        unfinished = self._engine.output_processor.get_num_unfinished_requests()
        last = self._last_stats.value
        waiting = min(last.waiting, unfinished)
        return msgspec.structs.replace(
            last,
            # With those that it has not heard of yet; if it never does, it hangs.
            running=unfinished - waiting,
            waiting=waiting,
            kv_cache_usage=last.kv_cache_usage if unfinished else 0.0,
        )

    async def check_health(self) -> None:
        """See `Engine`."""
        try:
            await self._engine.check_health()
        except compat.VllmEngineDeadError as error:
            raise _translate(error) from error

    async def close(self) -> None:
        """See `Engine`."""
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
            await asyncio.to_thread(compat.http_server)
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
