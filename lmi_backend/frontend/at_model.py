"""A kept answer as its model keeps it too, for the next front end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmi_backend.clients.form import Restorable, on_one_line
from lmi_backend.clients.openai.form import HttpForm
from lmi_backend.generation import HttpChunk
from lmi_backend.ipc.rejoining import Before

if TYPE_CHECKING:
    from lmi_backend.clients.form import Ending, Form
    from lmi_backend.errors import LmiError
    from lmi_backend.frontend.answer import Answer
    from lmi_backend.frontend.kept_answer import KeptAnswer
    from lmi_backend.generation import Chunk, Continuation

_EVENT_END: Final = b"\n\n"


class AtModel:
    """Tells the model what becomes of an answer.

    Args:
        kept: the answer here.
        answer: what comes of it.
        writer: writes its events.
    """

    def __init__(self, kept: KeptAnswer, answer: Answer, writer: Form) -> None:
        self._kept, self.answer, self._writer = kept, answer, writer
        self.name = kept.name
        answer.keep(self)

    def moved(self) -> None:
        """Note that another front end has the answer."""
        self._kept.lose()

    def before(self, where: Continuation) -> Before | None:
        """Return what the client has got, where the model resumes it; None if that is not known.

        A writer that hands on what comes knows nothing else by then. One that makes the events
        says what it has made them of.
        """
        events, writer, taken = self._kept.events.all(), self._writer, None
        if isinstance(writer, HttpForm):
            is_known = writer.has_each_line
        else:
            taken = writer.taken() if isinstance(writer, Restorable) else None
            is_known = taken is not None
        if events is None or not is_known:
            return None
        lines = (where.num_lines, on_one_line(where.head)) if taken is None else (0, b"")
        counts = self._kept.num_tokens, self._kept.num_prompt_tokens
        return Before(dict(writer.headers), *events, where.ids, *lines, *counts, taken)


class RestoredForm:
    """Hands on the events that another process has made, and has `inner` make the rest.

    Args:
        inner: makes the events of the answer.
    """

    is_failed = False

    def __init__(self, inner: Restorable) -> None:
        self._inner = inner
        self.status, self.headers, self.is_over = inner.status, inner.headers, False
        self._num_events: int | None = None
        """Those of another process, until `inner` has got what they were made of."""

    def write(self, chunks: list[Chunk]) -> bytes:
        """See `Form`."""
        data = b"".join(map(self._written, chunks))
        self.is_over = self._inner.is_over
        return data

    def failure(self, error: LmiError) -> Ending:
        """See `Form`."""
        return self._inner.failure(error)

    def _written(self, chunk: Chunk) -> bytes:
        if isinstance(chunk, HttpChunk):
            self._num_events = (self._num_events or 0) + chunk.data.count(_EVENT_END)
            return chunk.data
        if self._num_events is None:
            return self._inner.write([chunk])
        self._inner.restore(chunk, self._num_events)
        self._num_events = None
        return b""
