"""How a client gets an answer: the contract of what makes an HTTP response of chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.errors import LmiError
    from lmi_backend.generation import Chunk

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
LINES: Final = ("application/jsonlines", "application/x-ndjson")


_SPLITTING: Final = (
    (b"\xc2\x85", rb"\u0085"), (b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"),
)  # fmt: skip


def on_one_line(data: bytes) -> bytes:
    """Return JSON as a line for any reader: some split at characters that end a line elsewhere."""
    for raw, escaped in _SPLITTING:
        data = data.replace(raw, escaped)
    return data


class Ending(NamedTuple):
    """What is sent where an answer fails after it has begun."""

    data: bytes = b""
    is_end: bool = False
    """Whether the data tells the client of the error, so that the response may end after it.

    Otherwise the connection is closed without the end of the response.
    """


class Form(Protocol):
    """Makes an HTTP response of chunks."""

    @property
    def status(self) -> int:
        """Known after the first `write`, as `headers` are."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Without those of a connection."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether the answer is complete."""
        ...

    @property
    def is_failed(self) -> bool:
        """Whether the engine's own events report an error."""
        ...

    def write(self, chunks: list[Chunk]) -> bytes:
        """Return the bytes to send for some chunks. Raises LmiError: the answer is an error."""
        ...

    def failure(self, error: LmiError) -> Ending:
        """Return what is sent where an answer fails after it has begun."""
        ...


@runtime_checkable
class Restorable(Form, Protocol):
    """Can continue the events that another one has made."""

    def taken(self) -> Chunk | None:
        """Return what it has got of its only answer, as one; None if that is not known."""
        ...

    def restore(self, before: Any, num_events: int) -> None:
        """Take what another one has `taken`, and has made so many events of."""
        ...


def answers_of(work: object) -> int:
    """Return how many answers a request wants."""
    if isinstance(work, tuple):
        return sum(request.n for request in work)
    return 1


def named_event(name: str, data: bytes) -> bytes:
    """Return a server-sent event that has a name."""
    return b"event: " + name.encode() + b"\ndata: " + on_one_line(data) + b"\n\n"
