"""Results: each step yields the same object, with everything so far."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Logprob(NamedTuple):
    logprob: float
    rank: int | None = None


@dataclass
class CompletionOutput:
    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    cumulative_logprob: float | None = None
    logprobs: Any = field(default_factory=list)
    prompt_logprobs: Any = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: Any = None
    generation_logits: Any = None
    additional_context_outputs: Any = None
    additional_generation_outputs: Any = None
    disaggregated_params: Any = None
    request_perf_metrics: Any = None


class RequestOutput:
    def __init__(self, request_id: int, prompt_token_ids: list[int], n: int) -> None:
        self.request_id, self.prompt = request_id, None
        self.prompt_token_ids = prompt_token_ids
        self.outputs = [CompletionOutput(index) for index in range(n)]
        self.context_logits = None
        self.finished = False
        self._aborted = False
        # As in the library: made while a loop runs, or it cannot be awaited.
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Any] = asyncio.Queue()

    def abort(self) -> None:
        self._aborted = True

    def aborted(self) -> bool:
        return self._aborted

    def put(self, change: Any) -> None:
        """Called by the executor's thread."""
        self._loop.call_soon_threadsafe(self._queue.put_nowait, change)

    def __aiter__(self) -> "RequestOutput":
        return self

    async def __anext__(self) -> "RequestOutput":
        if self.finished:
            raise StopAsyncIteration
        change = await self._queue.get()
        if isinstance(change, Exception):
            raise change
        change(self)
        return self

    def result(self, timeout: float | None = None) -> "RequestOutput":
        raise NotImplementedError

    async def aresult(self) -> "RequestOutput":
        async for _ in self:
            pass
        return self
