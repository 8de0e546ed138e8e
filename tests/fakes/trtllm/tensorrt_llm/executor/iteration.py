"""Statistics of steps, as executor/executor.py and executor/result.py hand them out.

Until 1.1 a request makes their queue, a thread fills it, and a reader that waited in vain gets no
more before the next request. Since 1.2 the first reader makes the queue, and each reads the rows
that are there, in its own thread's time (executor/proxy.py, rpc_worker_mixin.py).
"""

import asyncio
import json
import sys
import threading
import time
from collections import deque
from typing import Any


class IterationResult:
    """Rows as they come; made while a loop runs, or they cannot be awaited."""

    def __init__(self) -> None:
        self._done, self._timeout = False, 2.0
        try:
            self._loop: Any = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None
        self._queue: asyncio.Queue[str] = asyncio.Queue()

    def set_timeout(self, timeout: float) -> None:
        self._timeout = timeout

    def mark_undone(self) -> None:
        self._done = False

    def put(self, row: str) -> None:
        assert self._loop is not None, "no event loop was present during initialization"
        self._loop.call_soon_threadsafe(self._queue.put_nowait, row)

    def __aiter__(self) -> "IterationResult":
        return self

    async def __anext__(self) -> Any:
        if self._done:
            raise StopAsyncIteration
        assert self._loop is not None, "no event loop was present during initialization"
        try:
            return json.loads(await asyncio.wait_for(self._queue.get(), self._timeout))
        except asyncio.TimeoutError:
            self._done = True
            raise StopAsyncIteration from None


class Iterations:
    """What an LLM has counted; `is_pushed` for the releases before 1.2."""

    def __init__(self, is_pushed: bool) -> None:
        self._is_pushed = is_pushed
        self._rows: deque[str] = deque(maxlen=1000)
        self._result: IterationResult | None = None
        self._lock = threading.Lock()
        self._iter = 0

    def submitted(self) -> None:
        if not self._is_pushed:
            return
        if self._result is None:
            self._result = IterationResult()
        self._result.mark_undone()

    def add(self, used_blocks: int, active: int) -> None:
        # The fields of the example in trtllm-serve's documentation.
        self._iter += 1
        row = {
            "gpuMemUsage": 76665782272,
            "iter": self._iter,
            "iterLatencyMS": 7.0,
            "kvCacheStats": {
                "allocNewBlocks": 3126,
                "allocTotalBlocks": 3126,
                "cacheHitRate": 0.00128,
                "freeNumBlocks": 1000 - used_blocks,
                "maxNumBlocks": 1000,
                "missedBlocks": 3121,
                "reusedBlocks": 4,
                "tokensPerBlock": 32,
                "usedNumBlocks": used_blocks,
            },
            "numActiveRequests": active,
        }
        with self._lock:
            if self._is_pushed and self._result is not None:
                self._result.put(json.dumps(row))
            else:
                self._rows.append(json.dumps(row))

    def read(self, timeout: float) -> Any:
        if self._is_pushed:
            if self._result is None:
                sys.stdout.write("Iteration statistics are not available yet.\n")
                return _nothing()
        else:
            if self._result is None:
                self._result = IterationResult()
            self._result.mark_undone()
            for row in self._fetch(timeout):
                self._result.put(row)
        self._result.set_timeout(timeout)
        return self._result

    def _fetch(self, timeout: float) -> list[str]:
        until = time.monotonic() + timeout
        while not self._rows and time.monotonic() < until:
            time.sleep(0.1)
        with self._lock:
            rows = list(self._rows)
            self._rows.clear()
        return rows


async def _nothing() -> Any:
    for _ in ():
        yield
