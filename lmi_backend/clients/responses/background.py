"""Responses in the background: OpenAI's `background: true`, whose client need not stay.

The engine makes a stream of it, which is buffered: the states come from that.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.clients.form import on_one_line
from lmi_backend.clients.responses.form import ResponsesForm
from lmi_backend.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.errors import LmiError
    from lmi_backend.generation import Chunk

PATH: Final = "/v1/responses"
MEMBER: Final = "background"
MARK: Final = b'"background"'
"""In each body that may have the member."""
_RESPONSE: Final = b'"response":'
_DATA: Final = b"data: "


class BackgroundForm(ResponsesForm):
    """A stream of events whose responses say that they are made in the background.

    Args:
        is_stream: whether the client reads the stream, too.
    """

    passes_events = False

    def __init__(self, *, is_stream: bool) -> None:
        super().__init__()
        self.is_stream = is_stream

    def write(self, chunks: list[Chunk]) -> bytes:
        """See `HttpForm`."""
        data = super().write(chunks)
        return _changed(data) if self.has_events and _RESPONSE in data else data

    def _event(self, error: LmiError) -> bytes:
        return _changed(super()._event(error))


def _changed(data: bytes) -> bytes:
    return b"\n".join(map(_in_background, data.split(b"\n")))


def _in_background(line: bytes) -> bytes:
    """Return a line of an event; if it has the response, with its member `background` true."""
    if not (line.startswith(_DATA) and _RESPONSE in line):
        return line
    event = json.loads(line[len(_DATA) :])
    if not isinstance(event.get("response"), dict):
        return line
    event["response"][MEMBER] = True
    text = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    return _DATA + on_one_line(text.encode())


def is_asked_by(body: Mapping[str, Any]) -> bool:
    """Tell whether the client of a request need not stay.

    Raises:
        RequestError: its response is not to be stored either.
    """
    if body.get(MEMBER) is not True:
        return False
    if body.get("store", True) is False:
        raise RequestError(
            "needs a response that is stored", field=MEMBER, value="true", accepted="store: true"
        )
    return True


def as_stream(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request that the engine gets."""
    return {**body, MEMBER: False, "stream": True}
