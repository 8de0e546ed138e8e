"""Errors amid Anthropic's events have a type that its clients know."""

import json

import pytest

from lmi_backend.clients.anthropic import EVENT, with_own_type
from lmi_backend.generation import reports_error


def _event(kind: str, message: str) -> bytes:
    body = {"type": "error", "error": {"type": kind, "message": message}}
    return EVENT + b"data: " + json.dumps(body).encode() + b"\n\n"


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("the core is tired", "the core is tired"),
        ("2 validation errors for ChatCompletionStreamResponse", "Internal server error"),
    ],
)
def test_vllms_type_becomes_anthropics(message: str, shown: str) -> None:
    event = with_own_type(_event("internal_error", message))
    assert event == _event("api_error", shown)
    assert reports_error(event)


@pytest.mark.parametrize(
    "event",
    [
        _event("overloaded_error", "a validation error"),
        EVENT + b"data: no JSON\n\n",
        EVENT + b'data: {"type":"error","error":"text"}\n\n',
        EVENT + b'data: {"type":"error","code":"server_error"}\n\n',
    ],
)
def test_other_errors_stay(event: bytes) -> None:
    assert with_own_type(event) == event
