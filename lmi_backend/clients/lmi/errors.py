"""Errors as LMI writes them: 424 for what is wrong with a body or a step."""

from __future__ import annotations

import json

from lmi_backend.clients.failure import ErrorResponse, failure, is_object
from lmi_backend.errors import HttpError, LmiError, lmi_status


def as_lmi(error: LmiError) -> HttpError:
    """Return an error as LMI writes it."""
    status = lmi_status(error)
    return HttpError(status, _text(status, str(error)))


def lmi_failure(error: LmiError) -> ErrorResponse:
    """Return an error as LMI's clients read it."""
    if isinstance(error, HttpError) and not is_object(str(error)):
        return failure(error.status, _text(error.status, str(error)), error)
    answer = error if isinstance(error, HttpError) else as_lmi(error)
    return failure(answer.status, str(answer), error)


def _text(status: int, message: str) -> str:
    return json.dumps({"code": status, "error": message}, ensure_ascii=False)
