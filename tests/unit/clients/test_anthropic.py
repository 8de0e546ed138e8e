"""Errors amid Anthropic's events have a type that its clients know."""

import json

import pytest

from lmi_backend.clients.anthropic import EVENT, anthropic_failure, with_own_type
from lmi_backend.errors import HttpError
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


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (404, "not_found_error"),
        (429, "rate_limit_error"),
        (499, "invalid_request_error"),
        (500, "api_error"),
        (503, "overloaded_error"),
        (599, "api_error"),
    ],
)
def test_a_type_says_whose_fault_it_is(status: int, kind: str) -> None:
    error = {"type": kind, "message": "why"}
    written = json.loads(anthropic_failure(HttpError(status, "why")).data)
    assert written["error"] == error
