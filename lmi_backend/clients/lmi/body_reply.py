"""Answers to whole bodies."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from lmi_backend.clients.lmi.errors import as_lmi
from lmi_backend.clients.lmi.formats.answers import dump
from lmi_backend.clients.reply import Reply
from lmi_backend.errors import HTTP_ERROR, HttpError, LmiError
from lmi_backend.generation import HttpChunk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmi_backend.clients.reply import Response
    from lmi_backend.generation import Chunk

_EVENT: Final = "data: "


class _TypedReply(Reply, Protocol):
    """A reply that writes a body of one content type."""

    @property
    def content_type(self) -> str: ...


@dataclass
class LmiBodyReply:
    """An LMI answer whose errors are bodies too."""

    inner: _TypedReply
    _has_written: bool = False

    @property
    def outputs(self) -> frozenset[str]:
        """Outputs the client named."""
        return self.inner.outputs

    @outputs.setter
    def outputs(self, names: frozenset[str]) -> None:
        self.inner.outputs = names

    @property
    def content_type(self) -> str:
        """Type of the body."""
        return self.inner.content_type

    def in_the_middle(self, error: LmiError) -> str:
        """Return what is written where an answer fails after it has begun."""
        body = getattr(self.inner, "body", None)
        return body.fail(self.inner.failure(error)) if body is not None else ""

    def responses(self, chunks: Sequence[Chunk], *, is_last: bool) -> list[Response]:
        responses = self.inner.responses(chunks, is_last=is_last)
        if responses and not self._has_written and "headers" in self.outputs:
            head = {"status": 200, "content-type": self.inner.content_type}
            responses[0] |= {"headers": json.dumps(head)}
        self._has_written |= bool(responses)
        return responses

    def failure(self, error: LmiError) -> LmiError:
        return as_lmi(self.inner.failure(error))


@dataclass
class BodyReply:
    """Bytes as they come; an HTTP error becomes an error whose text is the body."""

    outputs: frozenset[str] = frozenset()
    has_lines: bool = False
    """Whether an HTTP client gets a stream as JSON lines; tensors have events."""
    _first: HttpChunk | None = None
    _buffered: list[bytes] = field(default_factory=list)

    def responses(self, chunks: Sequence[Chunk], *, is_last: bool) -> list[Response]:
        responses = []
        for chunk in chunks:
            if isinstance(chunk, HttpChunk):
                responses += self._chunk(chunk, is_last=is_last)
        return responses

    def failure(self, error: LmiError) -> LmiError:
        return error if isinstance(error, HttpError) else as_lmi(error)

    def _chunk(self, chunk: HttpChunk, *, is_last: bool) -> list[Response]:
        is_first = self._first is None
        self._first = self._first or chunk
        if self._first.status >= HTTP_ERROR:
            self._buffered.append(chunk.data)
            if not is_last:
                return []
            raise HttpError(self._first.status, b"".join(self._buffered).decode("utf-8", "replace"))
        response: Response = {"response": chunk.data}
        if is_first and "headers" in self.outputs:
            response["headers"] = json.dumps({"status": chunk.status} | chunk.headers)
        return [response] if chunk.data or is_last or is_first else []


class LegacyChatReply(BodyReply):
    """OpenAI's answer, except for its finish reason: eos_token, or stop_sequence."""

    def responses(self, chunks: Sequence[Chunk], *, is_last: bool) -> list[Response]:
        responses = super().responses(chunks, is_last=is_last)
        for response in responses:
            data = response.get("response")
            # Most chunks of a stream do not end anything.
            if isinstance(data, bytes) and b'"finish_reason":"' in data.replace(b" ", b""):
                response["response"] = with_lmi_reasons(data.decode("utf-8"))
        return responses


def with_lmi_reasons(text: str) -> str:
    """Return OpenAI's body, or whole events, with the finish reasons of LMI's older handlers."""
    if not text.startswith(_EVENT):
        return dump(_with_reasons(json.loads(text)))
    return "\n\n".join(_translate_event(event) for event in text.split("\n\n"))


def _translate_event(event: str) -> str:
    body = event.removeprefix(_EVENT)
    return _EVENT + dump(_with_reasons(json.loads(body))) if body.startswith("{") else event


def _with_reasons(body: Any) -> Any:
    for choice in body.get("choices", ()):
        if choice.get("finish_reason") == "stop":
            is_string = choice.get("stop_reason") is not None
            choice["finish_reason"] = "stop_sequence" if is_string else "eos_token"
    return body
