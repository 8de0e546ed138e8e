"""The state of one request: what came from the engine and has not been sent yet."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol

from lmi_backend.errors import HTTP_ERROR, UnavailableError
from lmi_backend.generation import Delta, is_cut_short, joined, reports_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmi_backend.engine_config import RequestLimits
    from lmi_backend.errors import EngineDeadError, LmiError
    from lmi_backend.generation import Chunk
    from lmi_backend.ipc import messages as msg
    from lmi_backend.ipc.frames import Frame
    from lmi_backend.resume.progress import Progress
    from lmi_backend.serving.prefixes import Expectation, Prompt
    from lmi_backend.serving.spans import RequestSpan


_START_SECONDS: Final = 60.0
"""Seconds in which a request is to start to which nothing is promised."""
_KEPT_APART: Final = 256
"""Chunks of an answer; to join each with those before it copies a long text again and again."""


class Sink(Protocol):
    """Where an answer goes. Calls for one request never overlap."""

    @property
    def request_id(self) -> str:
        """What the client calls the request; may be empty."""
        ...

    def send(self, chunks: list[Chunk], *, is_last: bool) -> None:
        """Send chunks, at most one of each answer; the last ones end the request."""
        ...

    def fail(self, error: LmiError) -> None:
        """End the answer with an error."""
        ...

    def is_cancelled(self) -> bool:
        """Tell whether the client has left; costs a round trip to the server."""
        ...


class DirectClient(Protocol):
    """The receiver of the chunks of some `DirectSink`s."""

    def store(self, messages: Sequence[msg.ToClient]) -> None:
        """Keep messages until `flush`."""
        ...

    def flush(self) -> None:
        """Let what was kept leave; never waits for the client."""
        ...

    def close(self) -> None:
        """End all of its requests."""
        ...


class DirectSink(ABC):
    """A `Sink` that only stores what it gets: the thread that brings chunks may hand them over."""

    @abstractmethod
    def store(self, chunks: list[Chunk], *, is_last: bool) -> None:
        """Take chunks as `send` does; they leave when the client is flushed."""

    keeps_ids = False
    """Whether it wants the ids of tokens with their chunks, so that it can resume by them."""
    takes_events = False
    """Whether events may pass without a message of their own."""
    is_gone = False
    """Whether its client wants nothing more of it."""
    client: DirectClient
    number: int
    """The client's own for the request."""
    state: RequestState | None = None
    """State of its request, once that is admitted."""


class RequestState:
    """State of one request. `Service` guards it with its lock.

    At most one sender works on it at any time. `is_scheduled` is true from when the request is put
    on the ready queue until a sender finds nothing more to send.

    Args:
        request_id: ours, unlike `sink.request_id`, which is the client's.
        width: number of its answers.
        n: answers to each prompt.
        last_chunks: number of its last chunks, if it is not one for each answer.
    """

    __slots__ = (
        "_left",
        "_pending",
        "arrival",
        "began",
        "charged",
        "deadline",
        "death",
        "direct",
        "due",
        "error",
        "expectation",
        "expires_at",
        "first_at",
        "forecast",
        "frame",
        "id",
        "is_queued",
        "is_scheduled",
        "latest",
        "loss",
        "n",
        "num_prompt_tokens",
        "num_sent",
        "num_tokens",
        "only",
        "priority",
        "progress",
        "prompt",
        "prompt_tokens",
        "sent_at",
        "sink",
        "size",
        "span",
        "tenant",
        "tpot",
        "width",
        "worker",
    )

    def __init__(
        self,
        request_id: int,
        sink: Sink,
        *,
        deadline: float,
        width: int,
        n: int,
        last_chunks: int = 0,
    ) -> None:
        self.id, self.sink, self.deadline = request_id, sink, deadline
        self.arrival = request_id  # `id` changes with the worker
        self.width, self.n = width, n
        self.direct = sink if isinstance(sink, DirectSink) else None
        self.only: int | None = None
        """The one worker that it is for; None for any."""
        self.worker: int | None = None
        """That has the request; None while it waits for its turn."""
        self.prompt: Prompt | None = None
        """By which a worker is chosen; None where the one with the least to do is."""
        self.expectation: Expectation | None = None
        """What was expected of its worker, until that has begun to answer."""
        self.tenant, self.priority = "", 0
        self.is_queued = False
        self.frame: Frame = ()
        """What the worker is sent; empty once it was."""
        self.size = 0
        """Bytes of that, as it was sent first."""
        self.prompt_tokens = self.charged = 0.0
        """Of its prompts, once they are known; and of all that its tenant was charged for."""
        self.death: EngineDeadError | None = None
        """How its worker died before it was sent."""
        self.progress: Progress | None = None
        """What lets it resume when its worker dies; None if it cannot."""
        self.loss: EngineDeadError | None = None
        """How the worker died that it is to resume without."""
        self.expires_at = math.inf
        """When it has waited for a worker for long enough, while none is ready."""
        self.span: RequestSpan | None = None
        self.error: LmiError | None = None
        self.is_scheduled = False
        self.began = self.first_at = self.sent_at = time.monotonic()
        self.num_sent = self.num_tokens = self.num_prompt_tokens = 0
        self.due, self.tpot, self.latest = math.inf, math.inf, self.began + _START_SECONDS
        """When its answer must have begun, and the most seconds between its tokens; and by what a
        tenant's requests are in order."""
        self.forecast: tuple[float, float] | None = None
        """Seconds to its first token, as expected when it had to wait, and their spread."""
        self._left = last_chunks or width
        self._pending: dict[int, list[Chunk]] = {}

    def promise(self, ttft: int, tpot: int, limits: RequestLimits, seconds: float) -> None:
        """Have the answer begin, and its tokens follow, in time.

        Args:
            ttft: milliseconds to the first token; 0: as the limits say.
            tpot: milliseconds between tokens; the same.
            limits: of the model.
            seconds: that its client waits for all of it.
        """
        if first := ttft or limits.ttft_ms:
            self.due = self.began + first / 1000
        if seconds < limits.request_timeout:
            self.due = min(self.due, self.began + seconds)
        if gap := tpot or limits.tpot_ms:
            self.tpot = gap / 1000
        self.latest = min(self.latest, self.due)

    @property
    def is_complete(self) -> bool:
        return self._left == 0

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    @property
    def event_sink(self) -> DirectSink | None:
        """What takes the next event at once; None where events become chunks first."""
        direct = self.direct
        if direct is None or not direct.takes_events or direct.is_gone or self.error is not None:
            return None
        return None if self.is_scheduled or self._pending or not self.num_sent else direct

    def end_span(self, outcome: str) -> None:
        """End its span, where requests are traced; an outcome is as in `RequestStats.ended`."""
        if self.span is not None:
            if self.num_sent:
                first_seconds = self.first_at - self.began
                self.span.answered(first_seconds, self.num_prompt_tokens, self.num_tokens)
            self.span.end(outcome, self.error)

    def add(self, chunk: Chunk) -> None:
        """Take a chunk; those of an answer that wait together share a response."""
        waiting = self._pending.get(chunk.index)
        if waiting is None:
            self._pending[chunk.index] = [chunk]
        else:
            waiting.append(chunk)
            if len(waiting) > _KEPT_APART:
                waiting[:] = [joined(waiting)]
        self._left -= chunk.is_last

    def pass_on(self, chunk: Chunk) -> list[Chunk]:
        """Return what is to be sent now that a chunk has come: `add` and `take` in one."""
        if self._pending:
            self.add(chunk)
            return self.take()[0]
        self._left -= chunk.is_last
        return [chunk]

    def take(self) -> tuple[list[Chunk], LmiError | None]:
        """Return what is to be sent now, and forget the chunks."""
        # Most wait alone, and cost no call.
        chunks = [joined(each) if each[1:] else each[0] for each in self._pending.values()]
        self._pending.clear()
        return chunks, self.error

    def note_event(self, num_tokens: int, now: float) -> None:
        """Note for the stats that an event was passed on."""
        self.sent_at = now
        self.num_sent += 1
        self.num_tokens += num_tokens

    def drop(self) -> None:
        """Forget the chunks that wait to be sent."""
        self._pending.clear()


def send(sink: Sink, chunks: list[Chunk], error: LmiError | None, *, is_complete: bool) -> str:
    """Send the chunks and the error, if any; return the outcome, or nothing if more follows."""
    if chunks:
        sink.send(chunks, is_last=is_complete)
    if error is not None:
        sink.fail(error)
        return error.outcome
    return outcome_of(chunks[-1]) if is_complete else ""


def outcome_of(last: Chunk) -> str:
    if isinstance(last, Delta):
        return last.finish_reason or ""
    if last.status == HTTPStatus.SERVICE_UNAVAILABLE:
        return UnavailableError.code.lower()
    if last.status >= HTTP_ERROR or reports_error(last.data):
        return "error"
    return "length" if is_cut_short(last.data) else "stop"
