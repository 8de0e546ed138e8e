"""Answers in the events of OpenAI's responses, which are numbered."""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.clients.failure import status_of
from lmi_backend.clients.form import named_event
from lmi_backend.clients.openai.errors import openai_failure
from lmi_backend.clients.openai.form import RefusingForm

if TYPE_CHECKING:
    from lmi_backend.errors import LmiError

_SEQUENCE: Final = re.compile(rb'"sequence_number": ?(\d+)')
_CREATED: Final = b"response.created"


class ResponsesForm(RefusingForm):
    """The answer of an HTTP application; an error has the number after the last event's."""

    def __init__(self) -> None:
        super().__init__()
        self._created = self._latest = b""

    def note(self, data: bytes) -> None:
        """See `HttpForm`."""
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
        if (response := _response_in(self._created)) is not None:
            response |= {"status": "failed", "error": named}
            failed = {"type": "response.failed", "sequence_number": number, "response": response}
            events = named_event("response.failed", _dump(failed))
            number += 1
        # The client of OpenAI looks for `error`, the reference describes the other members.
        last = {
            "type": "error",
            "sequence_number": number,
            "param": None,
            **named,
            "error": members,
        }
        return events + named_event("error", _dump(last))


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
