"""Errors as LMI writes them: 424 for what is wrong with a body or a step."""

from __future__ import annotations

import json
from typing import Final

from lmi_backend.clients.failure import ErrorResponse, failure, is_object
from lmi_backend.errors import HttpError, LmiError, lmi_status

_MANAGEMENT: Final = {
    400: "BadRequestException", 404: "AdapterNotFoundException", 409: "ConflictException",
}  # fmt: skip


def as_lmi(error: LmiError) -> HttpError:
    status = lmi_status(error)
    return HttpError(status, _text(status, str(error)))


def as_management(error: LmiError) -> LmiError:
    """Return an error of a request about adapters as LMI's management API writes it."""
    if not isinstance(error, HttpError):
        return error
    kind = _MANAGEMENT.get(error.status, "ModelException")
    body = {"code": error.status, "type": kind, "message": str(error)}
    return HttpError(error.status, json.dumps(body, ensure_ascii=False))


def lmi_failure(error: LmiError) -> ErrorResponse:
    """Return an error as LMI's clients read it."""
    if isinstance(error, HttpError) and not is_object(str(error)):
        return failure(error.status, _text(error.status, str(error)), error)
    answer = error if isinstance(error, HttpError) else as_lmi(error)
    return failure(answer.status, str(answer), error)


def _text(status: int, message: str) -> str:
    return json.dumps({"code": status, "error": message}, ensure_ascii=False)
