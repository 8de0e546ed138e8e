"""Send every worker the same request, and answer once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmi_backend.errors import LmiError
    from lmi_backend.generation import Chunk
    from lmi_backend.pool.rank_group import WorkerStats
    from lmi_backend.serving.request_state import Sink


def send_to_all(
    workers: Sequence[WorkerStats], sink: Sink, send: Callable[[Sink, int | None], None]
) -> None:
    """Send each of some workers a request; the sink gets the last answer, or the first error.

    Args:
        workers: the ready ones get the request; if none is ready, any worker that accepts it.
        send: sends it to one worker; raises LmiError if it cannot, and then nothing reaches the
            sink.
    """
    ready = [index for index, each in enumerate(workers) if each.is_ready]
    targets: list[int | None] = [*ready] or [None]
    gathered = _GatheredSink(sink, len(targets))
    try:
        for index in targets:
            send(gathered, index)
    except BaseException:
        gathered.drop()
        raise


class _GatheredSink:
    """Takes the answers of several requests; senders of two may call it at once."""

    def __init__(self, sink: Sink, count: int) -> None:
        self._sink, self._left = sink, count
        self._lock = threading.Lock()
        self.request_id = sink.request_id

    def send(self, chunks: list[Chunk], *, is_last: bool) -> None:
        with self._lock:
            self._left -= is_last
            if is_last and not self._left:
                self._sink.send(chunks, is_last=True)

    def fail(self, error: LmiError) -> None:
        with self._lock:
            if self._left > 0:
                self._left = 0
                self._sink.fail(error)

    def is_cancelled(self) -> bool:
        return self._sink.is_cancelled()

    def drop(self) -> None:
        """Hand nothing on that is still to come."""
        with self._lock:
            self._left = 0
