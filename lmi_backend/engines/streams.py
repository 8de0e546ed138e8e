"""Several prompts at once, and the deltas of an engine as a generator."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from lmi_backend.engines.protocol import Engine, Sink
    from lmi_backend.generation import Delta, GenerateRequest


async def generate_all(
    engine: Engine, requests: Sequence[GenerateRequest], make_sink: Callable[[int], Sink]
) -> None:
    """Generate for several prompts side by side; the first that fails ends the others.

    Args:
        make_sink: returns the sink of a prompt, given the number of answers to the prompts
            before it.
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


async def stream(
    engine: Engine, requests: Sequence[GenerateRequest]
) -> AsyncGenerator[Delta, None]:
    """Yield the deltas of some prompts as they come; answers count over all prompts.

    Closing the generator aborts the requests. It raises what `Engine.generate` raises.
    """
    queue: asyncio.Queue[Delta | None] = asyncio.Queue()
    task = asyncio.create_task(generate_all(engine, requests, lambda n: _QueueSink(queue, n)))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (delta := await queue.get()) is not None:
            yield delta
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class _QueueSink:
    """Puts deltas into a queue; nothing is deferred."""

    def __init__(self, queue: asyncio.Queue[Delta | None], first_index: int) -> None:
        self._queue, self._first_index = queue, first_index

    def take(self, delta: Delta) -> None:
        delta.index += self._first_index
        self._queue.put_nowait(delta)

    def defer(self, flush: Callable[[], None]) -> bool:
        return False
