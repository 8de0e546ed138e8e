"""Answers of HTTP applications in OpenAI's events, and their error events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmi_backend.clients.form import EVENTS, Ending, on_one_line
from lmi_backend.clients.openai.errors import openai_failure
from lmi_backend.clients.openai.writing import DONE
from lmi_backend.errors import HTTP_ERROR, HttpError
from lmi_backend.generation import HttpChunk, reports_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.errors import LmiError
    from lmi_backend.generation import Chunk

# Of one connection; an application's answer may not say them.
_HOP_BY_HOP: Final = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive"})


class HttpForm:
    """The answer of an HTTP application, byte by byte; its events are OpenAI's."""

    passes_events = True
    """Whether events may reach the client without `write`: it changes none of them."""

    has_json = True
    """Whether each event is JSON."""

    def __init__(self) -> None:
        self.status, self.is_over, self.is_failed = 0, False, False
        self.headers: Mapping[str, str] = {}
        self.has_events = False

    def taken(self) -> HttpChunk | None:
        """See `Restorable`; as many lines were written as came, so that the model can resume."""
        return HttpChunk(headers=dict(self.headers)) if self.passes_events else None

    def restore(self, before: HttpChunk, num_events: int) -> None:
        """See `Restorable`."""
        self.write([before])

    def write(self, chunks: list[Chunk]) -> bytes:
        """Return the application's bytes.

        Raises:
            HttpError: the application reports an error in the middle of its answer.
        """
        data: list[bytes] = []
        for chunk in chunks:
            if not isinstance(chunk, HttpChunk):
                continue
            if not self.status:
                self._begin(chunk)
            elif chunk.status >= HTTP_ERROR > self.status:
                raise HttpError(chunk.status, chunk.data.decode("utf-8", "replace"))
            data.append(chunk.data)
            self.is_over = self.is_over or chunk.is_last
        written = data[0] if len(data) == 1 else b"".join(data)
        # Looked for here: calls are what an answer costs.
        if (b"\xe2\x80" in written or b"\xc2\x85" in written) and self.has_events and self.has_json:
            written = on_one_line(written)
        self.note(written)
        return written

    def note(self, data: bytes) -> None:
        """Note what the client gets. Events that reach it without `write` are noted too."""
        if self.has_events and reports_error(data):
            self.is_failed = True

    def _begin(self, chunk: HttpChunk) -> None:
        self.status = chunk.status
        self.headers = {n: value for n, value in chunk.headers.items() if n not in _HOP_BY_HOP}
        self.has_events = self.headers.get("content-type", "").startswith(EVENTS)

    def failure(self, error: LmiError) -> Ending:
        """Return an event with the error; other content types have no way to report it."""
        return Ending(self._event(error), is_end=True) if self.has_events else Ending()

    def _event(self, error: LmiError) -> bytes:
        return b"data: " + on_one_line(openai_failure(error).data) + b"\n\n" + DONE


class RefusingForm(HttpForm):
    """The answer of an HTTP application; its refusal is written as its client reads errors."""

    def __init__(self) -> None:
        super().__init__()
        self._refusal: list[bytes] = []

    def write(self, chunks: list[Chunk]) -> bytes:
        """See `HttpForm`.

        Raises:
            HttpError: the answer is an error, which need not have the client's format.
        """
        data = super().write(chunks)
        if self.status < HTTP_ERROR:
            return data
        self._refusal.append(data)
        if self.is_over:
            raise HttpError(self.status, b"".join(self._refusal).decode("utf-8", "replace"))
        return b""
