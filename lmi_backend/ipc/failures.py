"""Errors to messages and back."""

from __future__ import annotations

from typing import Final

from lmi_backend.errors import (
    CancelledError,
    DeadlineError,
    EngineDeadError,
    EngineError,
    HttpError,
    LateError,
    LmiError,
    MovedError,
    RequestError,
    StoppingError,
    UnavailableError,
)
from lmi_backend.ipc.messages import Failure, FailureKind

_KINDS: Final[dict[type[LmiError], FailureKind]] = {
    EngineDeadError: "dead",
    StoppingError: "stopping",
    UnavailableError: "unavailable",
    CancelledError: "cancelled",
    MovedError: "moved",
    DeadlineError: "deadline",
}
_ERRORS: Final[dict[str, type[LmiError]]] = {kind: error for error, kind in _KINDS.items()}


def failure_of(request_id: int, error: LmiError) -> Failure:
    if isinstance(error, RequestError):
        return Failure(request_id, "request", error.detail, error.field)
    if isinstance(error, HttpError):
        return Failure(request_id, "http", str(error), status=error.status)
    if isinstance(error, LateError):
        return Failure(request_id, "late", str(error), status=error.seconds)
    return Failure(request_id, _KINDS.get(type(error), "engine"), str(error))


def error_of(failure: Failure) -> LmiError:
    if failure.kind == "request":
        return RequestError(failure.message, field=failure.field)
    if failure.kind == "http":
        error = HttpError(failure.status, failure.message)
        error.is_models = True
        return error
    if failure.kind == "late":
        return LateError(failure.message, failure.status)
    return _ERRORS.get(failure.kind, EngineError)(failure.message)
