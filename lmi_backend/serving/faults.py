"""Turn an error that nobody expected into the failure of the one request that met it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import EngineError, LmiError
from lmi_backend.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.serving.request_state import RequestState, Sink

_log = logging.getLogger(__name__)

FAULT: Final = "an unexpected error: send the request again; the server's log has its trace"


def refuse(error: Exception, sink: Sink, count: Callable[[LmiError], None], what: str) -> None:
    """Fail a request that could not start, and log a defect, in the except block of its error."""
    if not isinstance(error, LmiError):
        _log.exception("%s", what)
        error = EngineError(FAULT)
    count(error)
    sink.fail(error)


def fault_of(state: RequestState, what: str) -> EngineError:
    """Log, with its trace, the exception that is being handled; return the request's error."""
    name = _name(state)
    _log.exception("request %s: %s", name, what)
    return EngineError(f"{what}: send it again; the server's log has the trace of request {name}")


def _name(state: RequestState) -> str:
    try:
        return repr(printable(state.sink.request_id))
    except Exception:  # noqa: BLE001  a sink may be what has failed
        return "without a name"
