"""Run a user's handler: an HTTP request in, chunks of its answer out."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from lmi_backend.errors import ConfigurationError
from lmi_backend.generation import HttpChunk, HttpRequest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping

    from lmi_backend.worker.handlers.custom_code import Function

_log = logging.getLogger(__name__)

_FAILED: Final = 300
_FIRST_STATUS: Final = 100
_LAST_STATUS: Final = 599
_MEMORY_WORDS: Final = ("No available memory for the cache blocks", "CUDA error: out of memory")
_FORM: Final = "application/x-www-form-urlencoded"
_END: Final = object()
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]{1,200}")
_LINES: Final = re.compile(r"[\x00-\x1f\x7f]+")
"""Characters that break a header's line, or could be no part of it."""


class HandlerRunner:
    """Calls a handler, as LMI does: first to load the model, then for each request.

    A plain function runs in a thread, one call at a time. A coroutine function or an asynchronous
    generator runs on the event loop, any number at once.
    """

    def __init__(self, handler: Function, properties: Mapping[str, str]) -> None:
        self._handler, self._properties = handler, properties
        self._thread = ThreadPoolExecutor(1, "lmi-handler")

    async def start(self) -> None:
        """Let the handler load its model; raise ConfigurationError if that fails."""
        from djl_python.inputs import Input  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

        inputs = Input()
        inputs.properties.update(self._properties)
        try:
            async for output, _ in self._outputs(inputs):
                _check_loaded(output)
        except ConfigurationError:
            raise
        except Exception as error:
            _log.exception("the handler failed to load its model")
            message = f"the handler failed to load its model: {type(error).__name__}: {error}"
            raise ConfigurationError(message) from error

    async def run(self, request: HttpRequest) -> AsyncGenerator[HttpChunk | None, None]:
        """Answer; a single None means that the handler leaves the request to the engine."""
        chunk: HttpChunk | None = None
        output: Any = None
        try:
            async for output, is_only in self._outputs(make_inputs(request)):
                if output is None:
                    continue
                async for chunk in self._chunks(output, is_last=is_only):
                    yield chunk
        except Exception as error:  # noqa: BLE001  it is the user's code
            _log.exception("the handler failed")
            yield _failure(error, self._handler)
            return
        finally:
            _finalize(output)
        if chunk is None and output is None and inspect.iscoroutinefunction(self._handler):
            yield None
        elif chunk is None or not chunk.is_last:
            yield HttpChunk(is_last=True, status=204 if chunk is None else HTTPStatus.OK)

    async def _outputs(self, inputs: Any) -> AsyncIterator[tuple[Any, bool]]:
        """Yield what the handler returns or yields, and whether nothing else can come."""
        if inspect.isasyncgenfunction(self._handler):
            async for output in self._handler(inputs):
                yield output, False
            return
        if inspect.iscoroutinefunction(self._handler):
            result = await self._handler(inputs)
        else:
            result = await self._in_thread(self._handler, inputs)
        if inspect.isasyncgen(result):
            async for output in result:
                yield output, False
        else:
            yield result, True

    async def _chunks(self, output: Any, *, is_last: bool) -> AsyncIterator[HttpChunk]:
        """Yield an output's contents, or its stream as it comes.

        Args:
            is_last: no other output comes. Contents are one chunk then: Triton's `generate` takes
                no second response.
        """
        status, headers = _status(output.code), _headers(output.properties)
        if output.stream_content is None:
            data = b"".join(_bytes(data) for _, data in output.content)
            yield HttpChunk(data, is_last=is_last, status=status, headers=headers)
            return
        write = output.stream_formatter or _line
        async for item in self._items(output.stream_content):
            yield HttpChunk(_bytes(write(item)), status=status, headers=headers)

    async def _items(self, stream: Any) -> AsyncIterator[Any]:
        if hasattr(stream, "__aiter__"):
            async for item in stream:
                yield item
            return
        iterator = iter(stream)
        while (item := await self._in_thread(next, iterator, _END)) is not _END:
            yield item

    async def _in_thread(self, function: Function, *arguments: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, function, *arguments)


def make_inputs(request: HttpRequest) -> Any:
    from djl_python.inputs import Input  # noqa: PLC0415

    inputs = Input()
    inputs.function_name = "handle"
    inputs.properties.update(request.headers)
    kind = (inputs.get_property("Content-Type") or "").lower()
    # curl calls all a form that it is not told otherwise.
    if _FORM in kind and not request.body.lstrip().startswith((b"{", b"[")):
        text = request.body.decode("utf-8", "replace")
        for name, value in parse_qsl(text, keep_blank_values=True):
            inputs.content.setdefault(name, value.encode())
    if not inputs.content:
        inputs.content["data"] = request.body
    return inputs


def _status(code: Any) -> int:
    """Return the HTTP status of an Output; LMI takes whole numbers, users write texts too."""
    status = int(code)
    if not _FIRST_STATUS <= status <= _LAST_STATUS:
        message = f"the code of an Output is {code!r:.80}; accepted: 100 to 599"
        raise ValueError(message)
    return status


def _headers(properties: Mapping[Any, Any]) -> dict[str, str]:
    """Return the properties of an Output as HTTP headers; one that is None is left out."""
    headers = {
        _text(name).lower(): _LINES.sub(" ", _text(value))
        for name, value in properties.items()
        if value is not None
    }
    if wrong := [name for name in headers if not _NAME.fullmatch(name)]:
        message = f"the property {wrong[0]!r:.80} cannot be the name of an HTTP header"
        raise ValueError(message)
    return headers


def _text(value: Any) -> str:
    """Return a value as text that can be sent: a half of a surrogate pair is no text."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text.encode("utf-8", "replace").decode()


def _bytes(value: Any) -> bytes:
    """Return a content as bytes: text as UTF-8, other values as JSON."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    return json.dumps(value).encode() if value is not None else b""


def _check_loaded(output: Any) -> None:
    if output is None or (code := _status(output.code)) < _FAILED:
        return
    reason = b"".join(_bytes(data) for _, data in output.content).decode("utf-8", "replace")
    what = "out of memory" if code == HTTPStatus.INSUFFICIENT_STORAGE else f"code {code}"
    message = f"the handler failed to load its model: {what}: {reason or output.message}"
    raise ConfigurationError(message)


def _failure(error: Exception, handler: Function) -> HttpChunk:
    """Return LMI's text for a handler that raised; its two engines have one each."""
    is_async = inspect.iscoroutinefunction(handler) or inspect.isasyncgenfunction(handler)
    is_memory = (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or any(words in str(error) for words in _MEMORY_WORDS)
    )
    status = HTTPStatus.INSUFFICIENT_STORAGE if is_memory else 424
    what = "service.invoke_handler_async() failure" if is_async else "invoke handler failure"
    body = {"code": status, "message": what, "error": str(error)}
    headers = {"content-type": "application/json"}
    return HttpChunk(json.dumps(body).encode(), is_last=True, status=status, headers=headers)


def _finalize(output: Any) -> None:
    finalizer = getattr(output, "finalizer", None)
    if finalizer is None:
        return
    try:
        function, arguments = finalizer
        function(*arguments)
    except Exception:  # noqa: BLE001  the answer has been sent
        _log.exception("the handler's finalizer failed")


def _line(item: Any) -> str:
    return json.dumps({"outputs": item if isinstance(item, list) else [item]}) + "\n"
