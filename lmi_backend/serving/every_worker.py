"""Send every worker the same request, and report once that all have answered."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lmi_backend.errors import LmiError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from lmi_backend.generation import Chunk
    from lmi_backend.pool.rank_group import WorkerStats
    from lmi_backend.serving.request_state import Sink

    AllEnd = Callable[[list[int], list[Chunk], LmiError | None], None]
    """Gets the numbers of the workers that have answered without an error, the last answer, and the
    first error."""


@dataclass
class _EndSink:
    """Calls `end` with the last chunks of an answer, or with its error."""

    end: Callable[[list[Chunk], LmiError | None], None]
    request_id = ""

    def send(self, chunks: list[Chunk], *, is_last: bool) -> None:
        if is_last:
            self.end(chunks, None)

    def fail(self, error: LmiError) -> None:
        self.end([], error)

    def is_cancelled(self) -> bool:
        return False


def send_to_all(
    workers: Sequence[WorkerStats],
    send: Callable[[Sink, int | None], None],
    end: AllEnd,
    only: Collection[int] | None = None,
) -> None:
    """Send each of some workers a request, and call `end` when all have answered.

    Args:
        workers: the ready ones get the request; if none is ready, any worker that accepts it.
        send: sends it to one worker; raises LmiError if it cannot, and then nothing reaches the
            sink.
        only: numbers of the workers that get it instead.
    """
    ready = [index for index, each in enumerate(workers) if each.is_ready]
    left: list[int | None] = [*(ready if only is None else only)] or [None]
    errors: list[LmiError] = []
    took: list[int] = []
    lock = threading.Lock()

    def end_one(index: int | None, chunks: list[Chunk], error: LmiError | None) -> None:
        # Senders of two may give theirs at once.
        with lock:
            left.remove(index)
            if error is not None:
                errors.append(error)
            elif index is not None:
                took.append(index)
            if left:
                return
        end(took, chunks, next(iter(errors), None))

    for index in tuple(left):
        one = _EndSink(partial(end_one, index))
        try:
            send(one, index)
        except LmiError as error:
            one.fail(error)
