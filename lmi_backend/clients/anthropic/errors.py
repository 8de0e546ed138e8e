"""Errors as Anthropic's clients read them."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from lmi_backend.clients.failure import ErrorResponse, failure, message_of, status_of

if TYPE_CHECKING:
    from lmi_backend.errors import LmiError

_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def anthropic_failure(error: LmiError) -> ErrorResponse:
    """Return an error as Anthropic's clients read it; an engine may have written it otherwise."""
    status = status_of(error)
    is_ours = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    kind = _TYPES.get(status, "api_error" if is_ours else "invalid_request_error")
    body = {"type": "error", "error": {"type": kind, "message": message_of(error)}}
    return failure(status, body, error)
