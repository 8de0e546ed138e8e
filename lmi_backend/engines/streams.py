"""Several prompts at once, and what sinks take as generators, and the other way round."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

from lmi_backend.errors import HTTP_ERROR, HttpError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from lmi_backend.engines.protocol import ChunkSink, DeltaSink, Engine
    from lmi_backend.generation import Delta, GenerateRequest, HttpChunk, HttpRequest

T = TypeVar("T")


async def generate_all(
    engine: Engine, requests: Sequence[GenerateRequest], make_sink: Callable[[int], DeltaSink]
) -> None:
    """Generate for several prompts side by side; if one fails, the others are cancelled.

    Args:
        make_sink: returns the sink of a prompt, given the number of answers to the prompts before
            it.
    """
    if len(requests) == 1:
        await engine.generate(requests[0], make_sink(0))
        return
    tasks = [
        asyncio.create_task(engine.generate(request, make_sink(index * request.n)))
        for index, request in enumerate(requests)
    ]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def stream(engine: Engine, requests: Sequence[GenerateRequest]) -> AsyncGenerator[Delta, None]:
    """Yield the deltas of some prompts as they come; answers count over all prompts.

    Closing the generator aborts the requests. It raises what `Engine.generate` raises.
    """
    return _chunks(
        lambda queue: generate_all(engine, requests, lambda first: _QueueSink(queue, first))
    )


def respond_stream(
    respond: Callable[[HttpRequest, ChunkSink], Awaitable[None]], request: HttpRequest
) -> AsyncGenerator[HttpChunk, None]:
    """Yield the chunks of the answer to a body; like `stream`.

    Args:
        respond: as `Engine.respond`.
    """
    return _chunks(lambda queue: respond(request, _QueueSink(queue)))


async def take_all(chunks: AsyncGenerator[HttpChunk, None], sink: ChunkSink) -> None:
    """Hand all chunks of a generator to a sink, and close it.

    Raises:
        HttpError: a chunk is an error, and what came before it was none.
    """
    first = 0
    async with aclosing(chunks):
        async for chunk in chunks:
            first = first or chunk.status
            if chunk.status >= HTTP_ERROR > first:
                raise HttpError(chunk.status, chunk.data.decode("utf-8", "replace"))
            sink.take(chunk)
            await sink.drain()


async def _chunks(
    run: Callable[[asyncio.Queue[T | None]], Awaitable[None]],
) -> AsyncGenerator[T, None]:
    queue: asyncio.Queue[T | None] = asyncio.Queue()
    task = asyncio.ensure_future(run(queue))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (chunk := await queue.get()) is not None:
            yield chunk
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class _QueueSink:
    """Puts chunks into a queue; nothing is deferred.

    Args:
        first_index: the number of answers to the prompts before.
    """

    def __init__(self, queue: asyncio.Queue[Any], first_index: int = 0) -> None:
        self._queue, self._first_index = queue, first_index

    def take(self, chunk: Delta | HttpChunk) -> None:
        if self._first_index:
            chunk.index += self._first_index  # type: ignore[misc]  # bodies have no first index
        self._queue.put_nowait(chunk)

    async def drain(self) -> None:
        """Wait for nothing: the reader of the queue waits."""

    def defer(self, flush: Callable[[], None], num_tokens: int) -> bool:
        return False
