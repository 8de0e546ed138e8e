"""What the errors of all clients share: status, headers, and the message to show."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from lmi_backend.errors import (
    CancelledError,
    DeadlineError,
    HttpError,
    LmiError,
    RequestError,
    StoppingError,
)

_RETRY_SECONDS: Final = 1
_UNSERVED: Final = "the model's engine does not serve this path"
_UNNAMED: Final = "the engine's error has no message"
_MESSAGES: Final = ("error", "detail", "message")
"""Members of a body in which an error has its message, or an object with it."""
RETRYABLE: Final = frozenset({429, 503})
"""Statuses with which a client is told when to try again."""


class ErrorResponse(NamedTuple):
    """An error's response."""

    status: int
    data: bytes
    headers: dict[str, str]


def status_of(error: LmiError) -> int:
    """Return the HTTP status of an error, for clients that tell a request's faults from ours."""
    if isinstance(error, HttpError):
        return error.status
    if isinstance(error, RequestError):
        return 400
    if isinstance(error, CancelledError):
        return 499
    if isinstance(error, DeadlineError):
        return 504
    return 503 if error.retryable else 500


def failure(status: int, body: object, error: LmiError) -> ErrorResponse:
    """Return the response of an error.

    Args:
        status: the response's.
        body: what is written as JSON; a text is JSON already.
        error: whose headers the response has.
    """
    headers = {"content-type": "application/json"}
    if status in RETRYABLE:
        headers["retry-after"] = str(getattr(error, "seconds", _RETRY_SECONDS))
    if isinstance(error, StoppingError):
        # A model may stop a moment before this process is told to.
        headers["connection"] = "close"
    if status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    return ErrorResponse(status, text.encode(), headers)


def is_object(text: str) -> bool:
    """Return whether the text of an error is a body already."""
    return text.startswith("{")


def body_of(error: LmiError) -> dict[str, Any]:
    """Return what an HTTP error's JSON body holds; nothing for any other error."""
    return _object_in(str(error)) if isinstance(error, HttpError) else {}


def message_of(error: LmiError) -> str:
    """Return the message of an error, whose body may have OpenAI's, LMI's or FastAPI's format."""
    body = body_of(error)
    if body.get("detail") == HTTPStatus.NOT_FOUND.phrase:
        return _UNSERVED
    text = str(error)
    # An error may have passed through several programs, each of which quotes the one before.
    while body or text == "{}":
        found = next((body[name] for name in _MESSAGES if body.get(name)), _UNNAMED)
        body = found if isinstance(found, dict) else _object_in(text := str(found))
    return text


def _object_in(text: str) -> dict[str, Any]:
    """Return the object that a text is in JSON; empty if it is none."""
    try:
        body: dict[str, Any] = json.loads(text) if is_object(text) else {}
    except (ValueError, RecursionError):
        return {}
    return body
