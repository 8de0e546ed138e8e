"""Send every worker the same request, and answer once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from lmi_backend.errors import LmiError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from lmi_backend.generation import Chunk
    from lmi_backend.ipc import messages as msg
    from lmi_backend.pool.rank_group import WorkerStats
    from lmi_backend.serving.request_state import Sink


def send_to_all(
    workers: Sequence[WorkerStats],
    sink: Sink,
    send: Callable[[Sink, int | None], None],
    only: Collection[int] | None = None,
) -> list[int]:
    """Send each of some workers a request, which is answered when all have answered.

    The sink gets the first error, or the last answer.

    Args:
        workers: the ready ones get the request; if none is ready, any worker that accepts it.
        send: sends it to one worker; raises LmiError if it cannot, and then nothing reaches the
            sink.
        only: numbers of the workers that get it instead.

    Returns:
        The numbers of the workers that have answered without an error; complete with the answer.
    """
    ready = [index for index, each in enumerate(workers) if each.is_ready]
    targets: Collection[int | None] = (ready if only is None else only) or [None]
    gathered = _Gathered(sink, len(targets))
    for index in targets:
        one = _OneSink(gathered, index)
        try:
            send(one, index)
        except LmiError as error:
            one.fail(error)
    return gathered.took


class EveryWorker:
    """Has workers carry out an order, and waits for all of them.

    Args:
        adapt: see `Service.adapt`.
        only: numbers of the workers that are told; None for all.
    """

    request_id = ""

    def __init__(
        self,
        adapt: Callable[[msg.SetAdapter, Sink, Collection[int] | None], list[int]],
        order: msg.SetAdapter,
        only: Collection[int] | None = None,
    ) -> None:
        self.error: LmiError | None = None
        self._is_over = threading.Event()
        self.took = adapt(order, self, only)
        """Numbers of the workers that have done it."""
        self._is_over.wait()

    def send(self, chunks: list[Chunk], *, is_last: bool) -> None:
        """Note that all have done it."""
        self._is_over.set()

    def fail(self, error: LmiError) -> None:
        self.error = error
        self._is_over.set()

    def is_cancelled(self) -> bool:
        """Return False: a change that has begun is finished."""
        return False


class _Gathered:
    """The answers of several workers; senders of two may give theirs at once."""

    def __init__(self, sink: Sink, count: int) -> None:
        self.sink, self._left = sink, count
        self._lock = threading.Lock()
        self._error: LmiError | None = None
        self.took: list[int] = []

    def note(self, index: int | None, answer: list[Chunk], error: LmiError | None) -> None:
        """Take the end of one worker's answer."""
        with self._lock:
            self._left -= 1
            self._error = self._error or error
            if error is None and index is not None:
                self.took.append(index)
            if self._left:
                return
        if self._error is not None:
            self.sink.fail(self._error)
        else:
            self.sink.send(answer, is_last=True)


class _OneSink:
    """Takes the answer of one worker."""

    def __init__(self, gathered: _Gathered, index: int | None) -> None:
        self._gathered, self._index = gathered, index
        self.request_id = gathered.sink.request_id

    def send(self, chunks: list[Chunk], *, is_last: bool) -> None:
        if is_last:
            self._gathered.note(self._index, chunks, None)

    def fail(self, error: LmiError) -> None:
        self._gathered.note(self._index, [], error)

    def is_cancelled(self) -> bool:
        return self._gathered.sink.is_cancelled()
