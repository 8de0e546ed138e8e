"""How a client gets an answer: the contract of what makes an HTTP response of chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmi_backend.clients.reply import Reply, Response
    from lmi_backend.errors import LmiError
    from lmi_backend.generation import Chunk, Delta

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

    status: int
    headers: Mapping[str, str]
    """Both are known after the first `write`."""
    is_over: bool
    """Whether the answer is complete."""

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
    """Makes events of tokens, and can continue those that another process has made."""

    def taken(self) -> Delta | None:
        """Return what it has got of its only answer, as one; None if it has several answers."""
        ...

    def restore(self, before: Delta, num_events: int) -> None:
        """Take what another process has got, and has made so many events of."""
        ...


class ReplyForm:
    """An answer that a `Reply` writes.

    Args:
        reply: writes the output `response`.
        answers: answers that the request wants.
        content_type: of the response.
        fail: writes an error in the middle of it; nothing, if the format cannot.
    """

    is_failed = False

    def __init__(
        self, reply: Reply, answers: int, content_type: str, fail: Callable[[LmiError], str]
    ) -> None:
        self.status, self.is_over = 200, False
        self.headers: Mapping[str, str] = {"content-type": content_type}
        self._reply, self._left, self._fail = reply, answers, fail

    def write(self, chunks: list[Chunk]) -> bytes:
        """Return the reply's bytes; the chunks of an answer are merged first."""
        return b"".join(_bytes(each.get("response", b"")) for each in self._responses(chunks))

    def _responses(self, chunks: list[Chunk]) -> list[Response]:
        if len(chunks) > 1:
            chunks = _merged(chunks)
        for chunk in chunks:
            self._left -= chunk.is_last
        self.is_over = self._left <= 0
        return self._reply.responses(chunks, is_last=self.is_over)

    def failure(self, error: LmiError) -> Ending:
        """Return what the reply's format writes."""
        data = self._fail(error).encode()
        return Ending(data, is_end=bool(data))


def answers_of(work: object) -> int:
    """Return how many answers a request wants."""
    if isinstance(work, tuple):
        return sum(request.n for request in work)
    return 1


def named_event(name: str, data: bytes) -> bytes:
    """Return a server-sent event that has a name."""
    return b"event: " + name.encode() + b"\ndata: " + on_one_line(data) + b"\n\n"


def _merged(chunks: list[Chunk]) -> list[Chunk]:
    """Return one chunk for each answer."""
    merged: dict[int, Chunk] = {}
    for chunk in chunks:
        if (before := merged.get(chunk.index)) is None:
            merged[chunk.index] = chunk
        else:
            before.merge(chunk)  # type: ignore[arg-type]  # a request has one kind of chunks
    return list(merged.values())


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
