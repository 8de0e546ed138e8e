"""Errors as OpenAI's clients read them."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.clients.failure import (
    ErrorResponse,
    body_of,
    failure,
    is_object,
    message_of,
    status_of,
)

if TYPE_CHECKING:
    from lmi_backend.errors import LmiError

_TYPES: Final = {
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    413: "RequestEntityTooLargeError",
    429: "RateLimitError",
    499: "ClientClosedRequest",
}
"""Types that are not called as HTTP calls their status."""


def openai_failure(error: LmiError) -> ErrorResponse:
    """Return an error as OpenAI's clients read it."""
    status = status_of(error)
    written = body_of(error).get("error")
    if isinstance(written, dict) and _is_openais(written):
        return failure(status, str(error), error)
    members = {
        "message": message_of(error),
        "type": _type_of(status),
        "param": getattr(error, "field", None),
        "code": status,
    }
    if isinstance(written, dict):
        # An engine's own server calls some types as HTTP calls the status: "Bad Request".
        members = {**written, "message": members["message"], "type": members["type"]}
    return failure(status, {"error": members}, error)


def _is_openais(written: dict[str, Any]) -> bool:
    """Tell whether an error has a type and a message that OpenAI's clients can read."""
    kind, message = written.get("type"), str(written.get("message"))
    return isinstance(kind, str) and kind.isidentifier() and not is_object(message)


def _type_of(status: int) -> str:
    if (known := _TYPES.get(status)) is not None:
        return known
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Bad Request" if status < HTTPStatus.INTERNAL_SERVER_ERROR else ""
    name = "".join(filter(str.isalnum, phrase.title())).removesuffix("Error")
    return f"{name or 'InternalServer'}Error"
