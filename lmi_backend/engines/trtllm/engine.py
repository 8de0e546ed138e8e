"""The engine implementation of TensorRT-LLM, and its arguments."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import sys
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from itertools import chain
from typing import Any, Final

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.protocol import DeltaSink, Rank
from lmi_backend.engines.steps import given_groups
from lmi_backend.engines.tokens import TemplateEngine, longest_token, prompt_ids
from lmi_backend.engines.trtllm import compat
from lmi_backend.engines.trtllm.outputs import ResultReader, can_go_on, sampling_params
from lmi_backend.engines.trtllm.stats import StepCounts
from lmi_backend.errors import (
    ConfigurationError,
    EngineDeadError,
    EngineError,
    LmiError,
    RequestError,
)
from lmi_backend.files import Seen, problem_of, seen
from lmi_backend.generation import GenerateRequest
from lmi_backend.ipc.engine import Capabilities, EngineStats
from lmi_backend.options.table.trtllm import STEP_COUNTS
from lmi_backend.structures import check_structures


def llm_arguments(config: EngineConfig) -> dict[str, Any]:
    given = {name: _read(text) for name, text in config.passthrough.items()} | config.arguments
    if given.get("enable_lora"):
        lora = given.setdefault("lora_config", {})
        # From them the library learns what adapters change; one may have been removed since.
        lora.setdefault("lora_dir", [each for each in config.adapters.values() if seen(each)])
    flat = {name: value for name, value in given.items() if not isinstance(value, dict)}
    nested = {name: value for name, value in given.items() if isinstance(value, dict)}
    arguments: dict[str, Any] = {"model": config.model} | flat
    arguments = compat.update_llm_args_with_extra_dict(arguments, nested)
    return arguments


def _read(text: str) -> Any:
    """Read an argument that the library's own types judge: JSON, else text."""
    try:
        return json.loads(text)
    except ValueError:
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)


class NumberedAdapter:
    """An adapter that is known.

    Args:
        numbers: by which the library tells adapters apart.
        max_rank: the largest rank that is served; 0 if it is not known.
    """

    def __init__(self, name: str, folder: str, numbers: Iterator[int], max_rank: int) -> None:
        self._name, self._folder, self._numbers = name, folder, numbers
        self._max_rank = max_rank or sys.maxsize
        self._files: Seen | None = None
        self._request: Any = None

    def request(self) -> Any:
        """Return the library's request for it, if its files are whole.

        Raises:
            RequestError: they are not: the library would fail on them in the middle of a step.
        """
        files = seen(self._folder)
        if files != self._files:
            if problem := problem_of(self._folder, self._max_rank):
                problem = f"cannot be loaded by TensorRT-LLM: {problem}"
                raise RequestError(problem, field="adapter", value=self._name)
            self._request = compat.LoRARequest(self._name, next(self._numbers), self._folder)
            self._files = files
        return self._request


_log = logging.getLogger(__name__)

# A killed rank leaves the library waiting for ever, and it has no health check of its own.
_STALL_SECONDS: Final = 300.0
# Its first request may compile kernels for longer.
_FIRST_STALL_SECONDS: Final = 1800.0
# `shutdown` waits for ranks that may be dead.
_SHUTDOWN_SECONDS: Final = 5.0


class TrtllmEngine(TemplateEngine):
    """One LLM. In MPI mode it leads the other ranks; else the library starts what it needs."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._llm: Any = None
        self._death: EngineDeadError | None = None
        self._open = 0
        self._last_output = time.monotonic()
        self._has_answered = False
        self._lora_ids = itertools.count(1)
        self._adapters: dict[str, NumberedAdapter] = {}
        self._counting: asyncio.Task[None] | None = None

    async def start(self) -> Capabilities:
        arguments = llm_arguments(self._config)
        try:
            self._llm = await asyncio.to_thread(self._create, arguments)
        except (ValueError, TypeError) as error:
            raise ConfigurationError(f"TensorRT-LLM refuses to start: {error}") from error
        self.max_model_len = getattr(self._llm.args, "max_seq_len", None) or 0
        # The library wraps Hugging Face's tokenizer.
        self.tokenizer = getattr(self._llm.tokenizer, "tokenizer", self._llm.tokenizer)
        self.longest_token = longest_token(self.tokenizer)
        self._counts = StepCounts(self._llm)
        self._is_counted = arguments.get(STEP_COUNTS) is True
        self._takes_trace_headers = compat.takes_trace_headers(self._llm)
        version, longest = compat.trtllm_version, self.longest_token
        return Capabilities("trtllm", version, self.max_model_len, longest)

    def _create(self, arguments: dict[str, Any]) -> Any:
        if "RANK" in os.environ:
            arguments["_mpi_session"] = compat.mpi_session(int(os.environ["WORLD_SIZE"]))
        try:
            return compat.LLM(**arguments)
        except (ValueError, TypeError) as error:
            # Ours, for metrics; a release may have none. The names are checked before all else.
            if STEP_COUNTS not in self._config.arguments or STEP_COUNTS not in str(error):
                raise
            _log.warning("no metrics of the KV cache: TensorRT-LLM refuses %s", error)
            del arguments[STEP_COUNTS]
            return compat.LLM(**arguments)

    async def generate(self, request: GenerateRequest, sink: DeltaSink) -> None:
        await self.check_health()
        ids = await prompt_ids(
            request,
            self._llm.tokenizer.encode,
            max_model_len=self.max_model_len,
            longest=self.longest_token,
        )
        sends_ids = self._config.sends_ids and request.stream and can_go_on(request)
        reader = ResultReader(self._llm.tokenizer, request, len(ids), sends_ids=sends_ids)
        given = given_groups(request)
        adapter = await self._adapter(request.adapter)
        result = self._submit(ids, list(chain.from_iterable(given)), request, adapter)
        self._begin()
        try:
            for delta in reader.given(given) if given else ():
                sink.take(delta)
            async for output in self._outputs(result):
                for delta in reader.deltas(output):
                    sink.take(delta)
        finally:
            self._open -= 1
            if not result.finished:
                result.abort()

    async def _outputs(self, result: Any) -> AsyncGenerator[Any, None]:
        try:
            async for output in result:
                self._last_output, self._has_answered = time.monotonic(), True
                yield output
        except Exception as error:
            raise self._failure(error) from error

    def _begin(self) -> None:
        if not self._open:
            self._last_output = time.monotonic()
        self._open += 1
        if self._is_counted and (self._counting is None or self._counting.done()):
            following = self._counts.follow(lambda: self._open > 0)
            self._counting = asyncio.create_task(following)

    def _submit(
        self, ids: list[int], given: list[int], request: GenerateRequest, adapter: Any
    ) -> Any:
        """Start a request, of whose answer its client has some tokens."""
        bounds = self._config.structure_bounds
        check_structures(request.sampling.extra.get("structured_outputs") or {}, bounds)
        try:
            return self._llm.generate_async(
                ids + given,
                sampling_params=sampling_params(request, len(given)),
                lora_request=adapter,
                streaming=request.stream,
                **self._trace(request.trace_headers),
            )
        except (ValueError, TypeError) as error:
            raise RequestError(f"is refused by TensorRT-LLM: {error}", field="request") from error
        except RuntimeError as error:
            raise self._failure(error) from error

    def _trace(self, headers: dict[str, str]) -> dict[str, Any]:
        return {"trace_headers": headers} if headers and self._takes_trace_headers else {}

    async def _adapter(self, name: str) -> Any:
        """Return the library's request for an adapter, whose files it reads later."""
        if not name:
            return None
        if name not in self._adapters:
            names = ", ".join(self._adapters) or "none: option.enable_lora is off"
            raise RequestError("is unknown", field="adapter", value=name, accepted=names)
        return await asyncio.to_thread(self._adapters[name].request)

    async def load_adapter(self, name: str, folder: str, *, preload: bool, pin: bool) -> None:
        # The library itself loads an adapter with the first request for it.
        if not self._config.arguments.get("enable_lora"):
            raise RequestError("needs option.enable_lora", field="adapter", value=name)
        max_rank = int(self._config.arguments.get("lora_config", {}).get("max_lora_rank", 0))
        adapter = NumberedAdapter(name, folder, self._lora_ids, max_rank)
        if preload:
            await asyncio.to_thread(adapter.request)
        self._adapters[name] = adapter

    async def unload_adapter(self, name: str) -> None:
        self._adapters.pop(name, None)

    def _failure(self, error: Exception) -> LmiError:
        if isinstance(error, compat.TrtllmRequestError):
            return EngineError(f"TensorRT-LLM failed on this request: {error}")
        # Anything else comes after the library has shut itself down.
        self._death = EngineDeadError(f"TensorRT-LLM died: {type(error).__name__}: {error}")
        return self._death

    def stats(self) -> EngineStats:
        running = min(self._open, self._config.arguments.get("max_batch_size", self._open))
        counts = self._counts.fields(is_busy=self._open > 0)
        return EngineStats(running=running, waiting=self._open - running, **counts)

    async def check_health(self) -> None:
        if self._death is not None:
            raise self._death
        limit = _STALL_SECONDS if self._has_answered else _FIRST_STALL_SECONDS
        if self._open and time.monotonic() - self._last_output > limit:
            raise EngineDeadError(f"TensorRT-LLM answered nothing for {limit:.0f} s")

    async def close(self) -> None:
        if self._counting is not None:
            self._counting.cancel()
        llm, self._llm = self._llm, None
        if llm is not None and self._death is None:
            closing = asyncio.ensure_future(asyncio.to_thread(llm.shutdown))
            await asyncio.wait({closing}, timeout=_SHUTDOWN_SECONDS)


class TrtllmFollower(Rank):
    """A rank after the first: runs what rank 0's LLM sends it, the loading of the model too."""

    async def start(self) -> Capabilities:
        threading.Thread(target=compat.follow, name="lmi-follow", daemon=True).start()
        return Capabilities("trtllm", compat.trtllm_version, 0)
