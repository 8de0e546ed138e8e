"""The rest of a stream that fails, as vLLM's server writes it."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from lmi_backend.engines.vllm.inside.streamed_chat import FailedOutputError
from lmi_backend.generation import reports_error

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from lmi_backend.generation import HttpChunk


class FailedStream:
    """An engine whose next answer fails as another one did, and the sink of that answer.

    Args:
        engine: the AsyncLLM.
        error: what the other one has failed with.
    """

    def __init__(self, engine: Any, error: Exception) -> None:
        self._engine, self._error = engine, error
        self._data = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(self, *given: Any, **named: Any) -> AsyncGenerator[Any, None]:
        """Fail as vLLM's own function does, which raises other errors than it gets."""
        if isinstance(self._error, FailedOutputError):
            yield self._error.output
        async with aclosing(type(self._engine).generate(self, *given, **named)) as outputs:
            async for output in outputs:
                yield output

    async def add_request(self, *_: Any, **__: Any) -> Any:
        """Fail."""
        raise self._error

    def take(self, chunk: HttpChunk) -> None:
        """Keep what vLLM's server writes."""
        self._data += chunk.data

    def defer(self, _flush: Callable[[], None], _num_tokens: int) -> bool:
        """Keep no token."""
        return False

    async def drain(self) -> None:
        """Wait for nothing."""

    def events(self) -> bytes:
        """Return the events from the error on."""
        events = self._data.split(b"\n\n")
        while len(events) > 1 and not reports_error(events[0] + b"\n\n"):
            del events[0]
        return b"\n\n".join(events)
