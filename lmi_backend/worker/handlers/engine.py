"""An engine with the user's code around it."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from contextlib import aclosing
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from lmi_backend import __version__
from lmi_backend.clients.lmi import INVOCATIONS
from lmi_backend.clients.request import read_body
from lmi_backend.engine_config import Context, EngineConfig
from lmi_backend.engines.protocol import ChunkSink, DeltaSink, Engine
from lmi_backend.engines.streams import respond_stream, stream, take_all
from lmi_backend.errors import EngineError, HttpError, RequestError
from lmi_backend.generation import Delta, GenerateRequest, HttpChunk, HttpRequest, reports_error
from lmi_backend.ipc.engine import Capabilities, EngineStats
from lmi_backend.options.spec import CUSTOM
from lmi_backend.worker.handlers import formatters
from lmi_backend.worker.handlers.custom_code import (
    CustomCode,
    Function,
    load_adapter_code,
    load_custom_code,
)
from lmi_backend.worker.handlers.formatters import Response, completion_request
from lmi_backend.worker.handlers.runner import HandlerRunner, make_inputs

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from lmi_backend.clients.spec import ParsedRequest

_log = logging.getLogger(__name__)


class CustomEngine(Engine):
    """Lets the user's handler and formatters work around an engine.

    Args:
        inner: what generates, unless the handler does; None where a handler replaces everything.
    """

    def __init__(self, config: EngineConfig, inner: Engine | None) -> None:
        super().__init__(config)
        self._inner = inner
        self._code = CustomCode()
        self._adapter_code: dict[str, CustomCode] = {}
        self._runner: HandlerRunner | None = None
        # What formatters leave to the engine is read as a request for text.
        clients = replace(config.clients, is_embedding=False)
        self._context = Context(clients, self._adapter_code.keys())

    async def start(self) -> Capabilities:
        # The user's code comes first: its mistakes show at once.
        if self._config.custom_file:
            file = Path(self._config.custom_file)
            _install(file.parent / "requirements.txt")
            self._code = load_custom_code(file, self._config.custom_handler)
        capabilities = Capabilities(CUSTOM, __version__, 0)
        if self._inner is not None:
            # The user's code may shorten a prompt.
            capabilities = msgspec.structs.replace(await self._inner.start(), longest_token=0)
        if self._code.handler is not None:
            self._runner = HandlerRunner(self._code.handler, self._config.properties)
            await self._runner.start()
        return capabilities

    async def generate(self, request: GenerateRequest, sink: DeltaSink) -> None:
        await self._generator().generate(request, sink)

    async def respond(self, request: HttpRequest, sink: ChunkSink) -> None:
        if request.path != INVOCATIONS:
            await self._generator().respond(request, sink)
        else:
            await take_all(self._invoke(request), sink)

    async def _invoke(self, request: HttpRequest) -> AsyncGenerator[HttpChunk, None]:
        is_left = False
        async with aclosing(self._runner.run(request) if self._runner else _leave()) as chunks:
            async for chunk in chunks:
                is_left = chunk is None
                if chunk is not None:
                    yield chunk
        if not is_left:
            return
        if self._inner is None:
            yield HttpChunk(is_last=True, status=HTTPStatus.NO_CONTENT)
            return
        try:
            async with aclosing(self._built_in(request)) as answers:
                async for answer in answers:
                    yield answer
        except HttpError as error:
            yield HttpChunk(str(error).encode(), is_last=True, status=error.status)

    def _built_in(self, request: HttpRequest) -> AsyncGenerator[HttpChunk, None]:
        """Return what the engine answers, which the user's formatters read and write."""
        body, write = self._read(request)
        parsed = read_body({"request": [json.dumps(body)]}, self._context)
        if isinstance(parsed.work, HttpRequest):
            if write is None:
                return respond_stream(self._generator().respond, parsed.work)
            return self._format(parsed.work, write)
        if write is None:
            return self._answer(parsed)
        if formatters.is_older(write):
            return self._format_steps(parsed, body, write)
        return self._format(completion_request(body), write)

    def _read(self, request: HttpRequest) -> tuple[dict[str, Any], Function | None]:
        """Return a body to continue with, and the formatter of its answer."""
        from djl_python.encode_decode import (  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415
            decode,
        )

        inputs = make_inputs(request)
        try:
            is_json = request.body.lstrip().startswith((b"{", b"["))
            body = decode(inputs, "application/json" if is_json else None)
        except (ValueError, KeyError) as error:
            raise formatters.unreadable(error) from error
        name = body.get("adapters") if isinstance(body, dict) else None
        own = self._adapter_code.get(name) if isinstance(name, str) else None
        read = (own and own.input_formatter) or self._code.input_formatter
        if read is not None:
            body = formatters.read_body(read, body, inputs, self._config.properties)
        return body, (own and own.output_formatter) or self._code.output_formatter

    async def _answer(self, parsed: ParsedRequest) -> AsyncGenerator[HttpChunk, None]:
        left = sum(request.n for request in parsed.work) if isinstance(parsed.work, tuple) else 0
        async for delta in self._deltas(parsed):
            left -= delta.is_last
            for response in parsed.reply.responses([delta], is_last=left == 0):
                text = str(response["response"])
                yield HttpChunk(text.encode(), is_last=left == 0, num_tokens=delta.num_tokens)

    async def _format_steps(
        self, parsed: ParsedRequest, body: Mapping[str, Any], write: Function
    ) -> AsyncGenerator[HttpChunk, None]:
        older = formatters.OlderFormatter(write, str(body["inputs"]), body.get("parameters") or {})
        async for delta in self._deltas(parsed):
            text = older.write(delta)
            yield HttpChunk(text.encode(), is_last=delta.is_last, num_tokens=delta.num_tokens)

    async def _deltas(self, parsed: ParsedRequest) -> AsyncGenerator[Delta, None]:
        if not isinstance(parsed.work, tuple):
            raise RequestError("is not a request for text", field="the request")
        first_index = 0
        for request in parsed.work:
            logged = msgspec.structs.replace(request, logprobs=request.logprobs or 0)
            async with aclosing(stream(self._generator(), [logged])) as deltas:
                async for delta in deltas:
                    delta.index += first_index
                    yield delta
            first_index += request.n

    async def _format(
        self, request: HttpRequest, write: Function
    ) -> AsyncGenerator[HttpChunk, None]:
        parts: list[bytes] = []
        has_events = False
        async with aclosing(respond_stream(self._generator().respond, request)) as chunks:
            async for chunk in chunks:
                kind = chunk.headers.get("content-type", "")
                has_events = has_events or kind.startswith("text/event-stream")
                if has_events:
                    _check_events(chunk.data)
                    events = chunk.data.decode().split("\n\n")
                    texts = [formatters.write_answer(write, event) for event in events if event]
                    yield HttpChunk("".join(texts).encode(), is_last=chunk.is_last)
                    continue
                parts.append(chunk.data)
                if not chunk.is_last:
                    continue
                if chunk.status != HTTPStatus.OK:
                    raise HttpError(chunk.status, b"".join(parts).decode())
                response = Response(json.loads(b"".join(parts)))
                yield HttpChunk(formatters.write_answer(write, response).encode(), is_last=True)

    def _generator(self) -> Engine:
        if self._inner is None:
            problem = "is not for this model, whose own handler reads LMI bodies"
            raise RequestError(problem, field="the request", accepted="inputs, or request")
        return self._inner

    async def load_adapter(self, name: str, folder: str, *, preload: bool, pin: bool) -> None:
        code = load_adapter_code(folder)
        # A model's own handler has its adapters from the start, and may look at the code alone.
        if self._inner is not None or preload:
            await self._generator().load_adapter(name, folder, preload=preload, pin=pin)
        self._adapter_code[name] = code

    async def unload_adapter(self, name: str) -> None:
        if self._inner is not None:
            await self._inner.unload_adapter(name)
        self._adapter_code.pop(name, None)

    def stats(self) -> EngineStats:
        return self._inner.stats() if self._inner is not None else EngineStats()

    async def check_health(self) -> None:
        if self._inner is not None:
            await self._inner.check_health()

    async def close(self) -> None:
        if self._inner is not None:
            await self._inner.close()


async def _leave() -> AsyncGenerator[HttpChunk | None, None]:
    """Leave a request to the engine, as a handler does."""
    yield None


def _install(requirements: Path) -> None:
    """Install what the user's code needs; as in LMI a failure is only logged."""
    if not requirements.is_file():
        return
    command = [sys.executable, "-m", "pip", "install", "--quiet", "-r", str(requirements)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        _log.warning("%s: cannot be installed: %s", requirements, done.stderr.strip()[-500:])


def _check_events(data: bytes) -> None:
    if reports_error(data):
        raise EngineError(data.decode("utf-8", "replace").strip())
