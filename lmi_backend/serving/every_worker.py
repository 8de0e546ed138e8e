"""Send every worker the same request, and answer once."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lmi_backend.errors import LmiError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from lmi_backend.generation import Chunk
    from lmi_backend.ipc import messages as msg
    from lmi_backend.pool.rank_group import WorkerStats
    from lmi_backend.serving.request_state import Sink


@dataclass
class _EndSink:
    """Calls `end` with the last chunks of an answer, or with its error."""

    end: Callable[[list[Chunk], LmiError | None], None]
    request_id: str = ""
    is_cancelled: Callable[[], bool] = lambda: False

    def send(self, chunks: list[Chunk], *, is_last: bool) -> None:
        if is_last:
            self.end(chunks, None)

    def fail(self, error: LmiError) -> None:
        self.end([], error)


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
    left: list[int | None] = [*(ready if only is None else only)] or [None]
    errors: list[LmiError] = []
    took: list[int] = []
    lock = threading.Lock()

    def end(index: int | None, chunks: list[Chunk], error: LmiError | None) -> None:
        # Senders of two may give theirs at once.
        with lock:
            left.remove(index)
            if error is not None:
                errors.append(error)
            elif index is not None:
                took.append(index)
            if left:
                return
        if errors:
            sink.fail(errors[0])
        else:
            sink.send(chunks, is_last=True)

    for index in tuple(left):
        one = _EndSink(partial(end, index), sink.request_id, sink.is_cancelled)
        try:
            send(one, index)
        except LmiError as error:
            one.fail(error)
    return took


def order_all(
    adapt: Callable[[msg.SetAdapter, Sink, Collection[int] | None], list[int]],
    order: msg.SetAdapter,
    only: Collection[int] | None = None,
) -> tuple[list[int], LmiError | None]:
    """Have workers carry out an order, and wait for all of them; nothing cancels it.

    Args:
        adapt: see `Service.adapt`.
        only: numbers of the workers that are told; None for all.

    Returns:
        The numbers of the workers that have done it, and the first error.
    """
    errors: list[LmiError | None] = []
    is_over = threading.Event()

    def end(_: list[Chunk], error: LmiError | None) -> None:
        errors.append(error)
        is_over.set()

    took = adapt(order, _EndSink(end), only)
    is_over.wait()
    return took, errors[0]
