"""Errors as Triton's clients read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmi_backend.clients.failure import ErrorResponse, failure, message_of, status_of

if TYPE_CHECKING:
    from lmi_backend.errors import LmiError


def triton_failure(error: LmiError) -> ErrorResponse:
    """Return an error as Triton's clients read it."""
    return failure(status_of(error), {"error": message_of(error)}, error)
