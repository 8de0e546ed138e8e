"""The state of one request: what came from the engine and has not been sent yet."""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol

from lmi_backend.errors import HTTP_ERROR, EngineError, LmiError, UnavailableError
from lmi_backend.generation import Delta, is_cut_short, joined, reports_error
from lmi_backend.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmi_backend.engine_config import RequestLimits
    from lmi_backend.errors import EngineDeadError
    from lmi_backend.generation import Chunk
    from lmi_backend.ipc import messages as msg
    from lmi_backend.ipc.frames import Frame
    from lmi_backend.resume.progress import Progress
    from lmi_backend.serving.prefixes import Expectation, Prompt
    from lmi_backend.serving.spans import RequestSpan


_log = logging.getLogger(__name__)

FAULT: Final = "an unexpected error: send the request again; the server's log has its trace"
_START_SECONDS: Final = 60.0
"""Seconds in which a request is to start to which nothing is promised."""
_KEPT_APART: Final = 256
"""Chunks of an answer; to join each with those before it copies a long text again and again."""


class Sink(Protocol):
    """Where an answer goes. Calls for one request never overlap."""

    @property
    def request_id(self) -> str:
        """What the client calls the request; may be empty."""

    def send(self, chunks: list[Chunk], *, is_last: bool) -> None:
        """Send chunks, at most one of each answer; the last ones end the request."""

    def fail(self, error: LmiError) -> None:
        """End the answer with an error."""

    def is_cancelled(self) -> bool:
        """Tell whether the client has left; costs a round trip to the server."""


class DirectClient(Protocol):
    """The receiver of the chunks of some `DirectSink`s."""

    def store(self, messages: Sequence[msg.ToClient]) -> None:
        """Keep messages until `flush`."""

    def flush(self) -> None:
        """Let what was kept leave; never waits for the client."""

    def close(self) -> None:
        """End all of its requests."""


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


@dataclass(slots=True, eq=False)
class RequestState:
    """State of one request. `Service` guards it with its lock.

    At most one sender works on it at any time. `is_scheduled` is true from when the request is put
    on the ready queue until a sender finds nothing more to send.
    """

    id: int
    """Ours, unlike `sink.request_id`, which is the client's; it changes with the worker."""
    sink: Sink
    _: KW_ONLY
    deadline: float
    width: int
    """Number of its answers."""
    n: int
    """Answers to each prompt."""
    last_chunks: int = 0
    """Number of its last chunks that are still to come; at first 0: one for each answer."""
    arrival: int = field(init=False)
    """Its first id."""
    direct: DirectSink | None = field(init=False)
    """Its sink, if that only stores."""
    only: int | None = None
    """The one worker that it is for; None for any."""
    worker: int | None = None
    """That has the request; None while it waits for its turn."""
    prompt: Prompt | None = None
    """By which a worker is chosen; None where the one with the least to do is."""
    expectation: Expectation | None = None
    """What was expected of its worker, until that has begun to answer."""
    tenant: str = ""
    priority: int = 0
    is_queued: bool = False
    frame: Frame = ()
    """What the worker is sent; empty once it was."""
    size: int = 0
    """Bytes of that, as it was sent first."""
    prompt_tokens: float = 0.0
    """Of its prompts, once they are known."""
    charged: float = 0.0
    """Tokens of all that its tenant was charged for."""
    death: EngineDeadError | None = None
    """How its worker died before it was sent."""
    progress: Progress | None = None
    """What lets it resume when its worker dies; None if it cannot."""
    loss: EngineDeadError | None = None
    """How the worker died that it is to resume without."""
    expires_at: float = math.inf
    """When it has waited for a worker for long enough, while none is ready."""
    span: RequestSpan | None = None
    error: LmiError | None = None
    is_scheduled: bool = False
    began: float = field(default_factory=time.monotonic)
    first_at: float = field(init=False)
    sent_at: float = field(init=False)
    num_sent: int = 0
    num_tokens: int = 0
    num_prompt_tokens: int = 0
    due: float = math.inf
    """When its answer must have begun."""
    tpot: float = math.inf
    """The most seconds between its tokens."""
    latest: float = field(init=False)
    """By what a tenant's requests are in order."""
    is_trial: bool = False
    """Whether it runs although it is expected late."""
    forecast: tuple[float, float] | None = None
    """Seconds to its first token, as expected when it had to wait, and their spread."""
    _pending: dict[int, list[Chunk]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.arrival = self.id
        self.direct = self.sink if isinstance(self.sink, DirectSink) else None
        self.first_at = self.sent_at = self.began
        self.latest = self.began + _START_SECONDS
        self.last_chunks = self.last_chunks or self.width

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
        return self.last_chunks == 0

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
        self.last_chunks -= chunk.is_last

    def pass_on(self, chunk: Chunk) -> list[Chunk]:
        """Return what is to be sent now that a chunk has come: `add` and `take` in one."""
        if self._pending:
            self.add(chunk)
            return self.take()[0]
        self.last_chunks -= chunk.is_last
        return [chunk]

    def take(self) -> tuple[list[Chunk], LmiError | None]:
        # Most wait alone, and cost no call.
        chunks = [joined(each) if each[1:] else each[0] for each in self._pending.values()]
        self._pending.clear()
        return chunks, self.error

    def drop(self) -> None:
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


def refuse(error: Exception, sink: Sink, count: Callable[[LmiError], None], what: str) -> None:
    """Fail a request that could not start, and log a defect, in the except block of its error."""
    if not isinstance(error, LmiError):
        _log.exception("%s", what)
        error = EngineError(FAULT)
    count(error)
    sink.fail(error)


def fault_of(state: RequestState, what: str) -> EngineError:
    """Log, with its trace, the exception that is being handled; return the request's error."""
    name = _name(state)
    _log.exception("request %s: %s", name, what)
    return EngineError(f"{what}: send it again; the server's log has the trace of request {name}")


def _name(state: RequestState) -> str:
    try:
        return repr(printable(state.sink.request_id))
    except Exception:  # noqa: BLE001  a sink may be what has failed
        return "without a name"
