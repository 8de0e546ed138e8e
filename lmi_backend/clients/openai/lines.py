"""OpenAI's streams as JSON lines, as the asynchronous handlers of LMI write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmi_backend.clients.form import LINES, Ending
from lmi_backend.clients.openai.errors import openai_failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.clients.openai.form import HttpForm
    from lmi_backend.errors import LmiError
    from lmi_backend.generation import Chunk

_END: Final = b"\n\n"
_DATA: Final = b"data:"
_DONE: Final = b"[DONE]"


class LinesForm:
    """Makes lines of the events that `inner` writes; all else is as `inner` writes it."""

    def __init__(self, inner: HttpForm) -> None:
        self._inner, self._held = inner, b""
        self.status, self.is_over = 0, False
        self.headers: Mapping[str, str] = {}

    @property
    def is_failed(self) -> bool:
        """Whether the engine's own events report an error."""
        return self._inner.is_failed

    def write(self, chunks: list[Chunk]) -> bytes:
        """See `Form`; an event is held until it is whole."""
        data = self._inner.write(chunks)
        self.status, self.is_over = self._inner.status, self._inner.is_over
        if not self._inner.has_events:
            self.headers = self._inner.headers
            return data
        self.headers = {**self._inner.headers, "content-type": LINES[0]}
        *events, self._held = (self._held + data).split(_END)
        if self.is_over:
            events.append(self._held)
            self._held = b""
        return b"".join(map(_line, events))

    def failure(self, error: LmiError) -> Ending:
        if not self._inner.has_events:
            return self._inner.failure(error)
        return Ending(openai_failure(error).data.strip() + b"\n", is_end=True)


def _line(event: bytes) -> bytes:
    """Return an event's data as a line; nothing for the last event, a comment or an empty one."""
    data = event.strip().removeprefix(_DATA).strip()
    return data + b"\n" if data.startswith(b"{") and data != _DONE else b""
