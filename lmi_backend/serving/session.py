"""One request on its way: what came from the engine and has not been sent yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from lmi_backend.errors import LmiError
    from lmi_backend.generation import Delta


class Sink(Protocol):
    """Where an answer goes. Calls for one request never overlap."""

    def send(self, delta: Delta) -> None:
        """Send a piece; one with a finish reason ends the answer."""
        ...

    def fail(self, error: LmiError) -> None:
        """End the answer with an error."""
        ...

    def is_cancelled(self) -> bool:
        """Tell whether the client has gone; costs a round trip to the server."""
        ...


class Session:
    """State of one request. `Service` guards it with its lock.

    At any time at most one sender holds it: `is_scheduled` is true from when it is put on the
    ready queue until a sender finds nothing more to send.
    """

    __slots__ = ("deadline", "error", "is_scheduled", "number", "pending", "sink", "worker")

    def __init__(self, number: int, sink: Sink, worker: int, deadline: float) -> None:
        self.number, self.sink, self.worker, self.deadline = number, sink, worker, deadline
        self.pending: Delta | None = None
        self.error: LmiError | None = None
        self.is_scheduled = False

    def add(self, delta: Delta) -> None:
        """Take a delta; one that still waits grows, so both share a response."""
        if self.pending is None:
            self.pending = delta
        else:
            self.pending.merge(delta)

    def take(self) -> tuple[Delta | None, LmiError | None]:
        """Return what is to be sent now, and forget the delta."""
        delta, self.pending = self.pending, None
        return delta, self.error
