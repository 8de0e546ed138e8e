"""What clients of OpenAI's Responses API are.

An engine that makes the events again draws new ids and takes another time. Its client must see the
first ones, so these are put back in their places.

A response with OpenAI's `background: true` has a client that need not stay. The engine makes a
stream of it, which is buffered: the states come from that.
"""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.clients.openai import RefusingForm, openai_failure
from lmi_backend.clients.spec import (
    RELAY,
    STORED,
    ClientSpec,
    Path,
    named_event,
    on_one_line,
    status_of,
)
from lmi_backend.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lmi_backend.errors import LmiError
    from lmi_backend.generation import Chunk


MOST: Final = 256
"""Names that are kept of a stream; a response has two, and one or two for each of its items."""
_NAME: Final = re.compile(
    rb'"(?:id|item_id|call_id)": ?("[\w.:-]{1,128}")|("created_at": ?[0-9.]+)'
)


class EventNames:
    """The names in the events of a stream, each once, in the order in which they came.

    Args:
        text: those of its beginning, as `text` returned them.
    """

    def __init__(self, text: bytes = b"") -> None:
        self._named: dict[bytes, None] = dict.fromkeys(text.splitlines())
        self._rest = b""
        """Of a line whose end has not come."""

    def add(self, data: bytes) -> None:
        """Take the names from the next bytes of a stream, while they are few."""
        if not self.are_few:
            return
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        for quoted, time in _NAME.findall(data, 0, end):
            self._named[quoted or time] = None

    @property
    def are_few(self) -> bool:
        return len(self._named) <= MOST

    @property
    def text(self) -> bytes:
        return b"\n".join(self._named)

    def put_back(self, earlier: EventNames, data: bytes) -> bytes:
        for own, first in zip(self._named, earlier._named, strict=False):
            if own != first:
                data = data.replace(own, first)
        return data

    def covers(self, earlier: EventNames) -> bool:
        return len(self._named) >= len(earlier._named)


_SEQUENCE: Final = re.compile(rb'"sequence_number": ?(\d+)')
_CREATED: Final = b"response.created"


class ResponsesForm(RefusingForm):
    """The answer of an HTTP application; an error has the number after the last event's."""

    def __init__(self) -> None:
        super().__init__()
        self._created = self._latest = b""

    def note(self, data: bytes) -> None:
        super().note(data)
        if not self._created and _CREATED in data:
            self._created = data
        if b'"sequence_number"' in data:
            self._latest = data

    def _event(self, error: LmiError) -> bytes:
        """Return the response as failed, and an `error` event, at which OpenAI's client raises."""
        numbers = _SEQUENCE.findall(self._latest)
        number = int(numbers[-1]) + 1 if numbers else 0
        members = json.loads(openai_failure(error).data)["error"]
        is_clients = status_of(error) == HTTPStatus.BAD_REQUEST
        code = "invalid_prompt" if is_clients else "server_error"
        named: dict[str, Any] = {"code": code, "message": members["message"]}
        events = b""
        if (response := next(responses_in(self._created), None)) is not None:
            response |= {"status": "failed", "error": named}
            failed = {"type": "response.failed", "sequence_number": number, "response": response}
            events = named_event("response.failed", _dump(failed))
            number += 1
        # The client of OpenAI looks for `error`, the reference describes the other members.
        last = {"type": "error", "sequence_number": number, "param": None, "error": members}
        return events + named_event("error", _dump(last | named))


def responses_in(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.split(b"\n")[:-1]:
        if line.startswith(b"data: {") and _RESPONSE in line:
            response = json.loads(line[5:]).get("response")
            if isinstance(response, dict):
                yield response


def _dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


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


def wants_background(body: Mapping[str, Any]) -> bool:
    """Tell whether its client need not stay. Raises RequestError: it is not to be stored either."""
    if body.get(MEMBER) is not True:
        return False
    if body.get("store", True) is False:
        raise RequestError(
            "needs a response that is stored", field=MEMBER, value="true", accepted="store: true"
        )
    return True


SPEC: Final = ClientSpec(
    name="responses",
    title="OpenAI, Responses",
    failure=openai_failure,
    form=ResponsesForm,
    paths=(
        Path("/v1/responses", RELAY, takes_place=True, can_resume=True, by_tensor=True),
        Path("/v1/responses/render", RELAY, by_tensor=True),
        Path("/v1/responses/{id}", STORED, "GET DELETE", by_tensor=True),
        Path("/v1/responses/{id}/cancel", STORED, by_tensor=True),
    ),
)
