"""Answers of HTTP applications, and how one that fails in the middle ends for its client."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lmi_backend.errors import HTTP_ERROR, HttpError
from lmi_backend.frontend.exchange import EVENTS
from lmi_backend.frontend.failures import (
    Failure,
    anthropic_failure,
    lmi_failure,
    openai_failure,
)
from lmi_backend.generation import HttpChunk, reports_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmi_backend.errors import LmiError
    from lmi_backend.generation import Chunk

_LINES: Final = ("application/jsonlines", "application/x-ndjson")
_DONE: Final = b"data: [DONE]\n\n"
# Of one connection; an application's answer may not say them.
_HOP_BY_HOP: Final = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive"})
_SEQUENCE: Final = re.compile(rb'"sequence_number": ?(\d+)')
_CREATED: Final = b"response.created"


class Ending(NamedTuple):
    """What is sent where an answer fails after it has begun."""

    data: bytes = b""
    is_end: bool = False
    """Whether the data tells the client of the error, so that the response may end after it.

    Otherwise the connection is closed without the end of the response.
    """


class HttpForm:
    """The answer of an HTTP application, byte by byte; its events are OpenAI's."""

    def __init__(self) -> None:
        self.status, self.is_over, self.is_failed = 0, False, False
        self.headers: Mapping[str, str] = {}
        self._has_events = False

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
        if self._has_events and reports_error(written):
            self.is_failed = True
        return written

    def _begin(self, chunk: HttpChunk) -> None:
        kept = (pair for pair in chunk.headers.items() if pair[0] not in _HOP_BY_HOP)
        self.status, self.headers = chunk.status, dict(kept)
        self._has_events = self.headers.get("content-type", "").startswith(EVENTS)

    def failure(self, error: LmiError) -> Ending:
        """Return an event with the error; other content types have no way to report it."""
        return Ending(self._event(error), is_end=True) if self._has_events else Ending()

    def _event(self, error: LmiError) -> bytes:
        return b"data: " + openai_failure(error).data + b"\n\n" + _DONE


class MessagesForm(HttpForm):
    """The same in Anthropic's events, after which nothing follows."""

    def __init__(self) -> None:
        super().__init__()
        self._refusal: list[bytes] = []

    def write(self, chunks: list[Chunk]) -> bytes:
        """See `HttpForm`.

        Raises:
            HttpError: the answer is an error, which need not have Anthropic's form.
        """
        data = super().write(chunks)
        if self.status < HTTP_ERROR:
            return data
        self._refusal.append(data)
        if self.is_over:
            raise HttpError(self.status, b"".join(self._refusal).decode("utf-8", "replace"))
        return b""

    def _event(self, error: LmiError) -> bytes:
        return _named_event("error", anthropic_failure(error).data)


class ResponsesForm(HttpForm):
    """The same in the events of OpenAI's responses, which are numbered."""

    def __init__(self) -> None:
        super().__init__()
        self._created = self._latest = b""

    def write(self, chunks: list[Chunk]) -> bytes:
        """See `HttpForm`."""
        data = super().write(chunks)
        if not self._created and _CREATED in data:
            self._created = data
        if b'"sequence_number"' in data:
            self._latest = data
        return data

    def _event(self, error: LmiError) -> bytes:
        """Return the response as failed, and an `error` event, at which OpenAI's client raises."""
        numbers = _SEQUENCE.findall(self._latest)
        number = int(numbers[-1]) + 1 if numbers else 0
        said = json.loads(openai_failure(error).data)["error"]
        named: dict[str, Any] = {"code": "server_error", "message": said["message"]}
        events = b""
        if (response := _response_in(self._created)) is not None:
            response |= {"status": "failed", "error": named}
            failed = {"type": "response.failed", "sequence_number": number, "response": response}
            events = _named_event("response.failed", _dump(failed))
            number += 1
        # The client of OpenAI looks for `error`, the reference describes the other members.
        last = {"type": "error", "sequence_number": number, "param": None, **named, "error": said}
        return events + _named_event("error", _dump(last))


class HandlerForm(HttpForm):
    """The answer of a user's own code, whose clients may not know how LMI reports an error.

    LMI's error is sent where it does not damage the format. The end is missing in any case.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last_byte = b"\n"

    def write(self, chunks: list[Chunk]) -> bytes:
        """See `HttpForm`."""
        data = super().write(chunks)
        self._last_byte = data[-1:] or self._last_byte
        return data

    def failure(self, error: LmiError) -> Ending:
        """Return LMI's error as an event or a line; nothing for other content types."""
        said = lmi_failure(error).data.strip()
        if self._has_events:
            # The code may have written a part of an event.
            return Ending(b"\n\ndata: " + said + b"\n\n")
        if self.headers.get("content-type", "").startswith(_LINES):
            return Ending((b"" if self._last_byte == b"\n" else b"\n") + said + b"\n")
        return Ending()


class Dialect(NamedTuple):
    """How the clients of a path that takes bodies read an answer and its errors."""

    failure: Callable[[LmiError], Failure]
    """Returns the response of an error that comes before anything else."""
    form: type[HttpForm]


_OPENAI: Final = Dialect(openai_failure, HttpForm)
_DIALECTS: Final = {
    "messages": Dialect(anthropic_failure, MessagesForm),
    "responses": Dialect(openai_failure, ResponsesForm),
}


def dialect_of(path: str) -> Dialect:
    """Return the dialect of a path, or of what is below it; OpenAI's, if it is no other's."""
    first, _, rest = path.removeprefix("/").partition("/")
    return _DIALECTS.get(rest.partition("/")[0], _OPENAI) if first == "v1" else _OPENAI


def _named_event(name: str, data: bytes) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def _response_in(data: bytes) -> dict[str, Any] | None:
    """Return the response that the first events of a stream have created, if one is there."""
    for line in data.splitlines():
        if line.startswith(b"data:") and _CREATED in line:
            try:
                response: dict[str, Any] = json.loads(line[5:])["response"]
            except (ValueError, KeyError, TypeError):
                return None
            return response if isinstance(response, dict) else None
    return None


def _dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
