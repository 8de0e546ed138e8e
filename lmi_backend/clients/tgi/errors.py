"""Errors as the clients of Text Generation Inference read them."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from lmi_backend.clients.failure import ErrorResponse, failure, message_of, status_of

if TYPE_CHECKING:
    from lmi_backend.errors import LmiError

# It has no type for a wrong key, which is no fault of the body: its clients raise what is unknown.
_TYPES: Final = {
    401: "authentication", 403: "authentication", 429: "overloaded", 503: "overloaded",
}  # fmt: skip


def tgi_failure(error: LmiError) -> ErrorResponse:
    """Return an error as the clients of Text Generation Inference read it."""
    status = status_of(error)
    is_ours = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    kind = _TYPES.get(status, "generation" if is_ours else "validation")
    # Its clients know 422 for a wrong body.
    shown = HTTPStatus.UNPROCESSABLE_ENTITY if status == HTTPStatus.BAD_REQUEST else status
    return failure(shown, {"error": message_of(error), "error_type": kind}, error)
