"""Errors as each kind of client reads them: status, body and headers."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from lmi_backend.errors import (
    CancelledError,
    DeadlineError,
    HttpError,
    LmiError,
    RequestError,
    StoppingError,
)
from lmi_backend.schema.body_reply import as_lmi

_RETRY_SECONDS: Final = 1
_UNAUTHORIZED: Final = 401
_RETRYABLE: Final = frozenset({429, 503})
_TYPES: Final = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    408: "RequestTimeoutError",
    413: "RequestEntityTooLargeError",
    415: "UnsupportedMediaTypeError",
    429: "RateLimitError",
    499: "ClientClosedRequest",
    503: "ServiceUnavailableError",
    504: "GatewayTimeoutError",
}


class Failure(NamedTuple):
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


def openai_failure(error: LmiError) -> Failure:
    """Return an error as OpenAI's clients read it."""
    status, body = status_of(error), _body(error)
    if isinstance(body.get("error"), dict):
        return _failure(status, str(error), error)
    said = {
        "message": _message(error, body),
        "type": _TYPES.get(status, "InternalServerError"),
        "param": getattr(error, "field", None),
        "code": status,
    }
    return _failure(status, json.dumps({"error": said}, ensure_ascii=False), error)


def anthropic_failure(error: LmiError) -> Failure:
    """Return an error as Anthropic's clients read it; an engine may have written it otherwise."""
    status = status_of(error)
    kinds = {
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        503: "overloaded_error",
        504: "timeout_error",
    }
    named = {"type": kinds.get(status, "api_error"), "message": _message(error, _body(error))}
    said = {"type": "error", "error": named}
    return _failure(status, json.dumps(said, ensure_ascii=False), error)


def lmi_failure(error: LmiError) -> Failure:
    """Return an error as LMI's clients read it: 424 for what is wrong with a body or a step."""
    if isinstance(error, HttpError) and not _is_object(str(error)):
        body = {"code": error.status, "error": str(error)}
        return _failure(error.status, json.dumps(body, ensure_ascii=False), error)
    answer = error if isinstance(error, HttpError) else as_lmi(error)
    return _failure(answer.status, str(answer), error)


def tgi_failure(error: LmiError) -> Failure:
    """Return an error as the clients of Text Generation Inference read it."""
    status, text = status_of(error), _message(error, _body(error))
    kinds = {400: "validation", 429: "overloaded", 503: "overloaded"}
    # Its clients know 422 for a wrong body.
    shown = 422 if status == 400 else status
    body = {"error": text, "error_type": kinds.get(status, "generation")}
    return _failure(shown, json.dumps(body, ensure_ascii=False), error)


def triton_failure(error: LmiError) -> Failure:
    """Return an error as Triton's clients read it."""
    body = {"error": str(error)}
    return _failure(status_of(error), json.dumps(body, ensure_ascii=False), error)


def _failure(status: int, text: str, error: LmiError) -> Failure:
    headers = {"content-type": "application/json"}
    if status in _RETRYABLE:
        headers["retry-after"] = str(getattr(error, "seconds", _RETRY_SECONDS))
    if isinstance(error, StoppingError):
        # A model may stop a moment before this process is told to.
        headers["connection"] = "close"
    if status == _UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    return Failure(status, text.encode(), headers)


def _is_object(text: str) -> bool:
    return text.startswith("{")


def _body(error: LmiError) -> dict[str, Any]:
    """Return what an HTTP error's JSON body holds; nothing for any other error."""
    if not (isinstance(error, HttpError) and _is_object(str(error))):
        return {}
    try:
        body: dict[str, Any] = json.loads(str(error))
    except (ValueError, RecursionError):
        return {}
    return body


def _message(error: LmiError, body: dict[str, Any]) -> str:
    """Return the message of an error, whose body may have OpenAI's or LMI's format."""
    said = body.get("error") or str(error)
    return str(said.get("message") or said) if isinstance(said, dict) else str(said)
