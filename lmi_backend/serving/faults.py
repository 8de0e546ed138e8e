"""Turn an error that nobody expected into the failure of the one request that met it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lmi_backend.errors import EngineError
from lmi_backend.printable import printable

if TYPE_CHECKING:
    from lmi_backend.serving.request_state import RequestState

_log = logging.getLogger(__name__)


def fault_of(state: RequestState, what: str) -> EngineError:
    """Log, with its trace, the exception that is being handled; return the request's error.

    Args:
        what: what could not be done.
    """
    name = _name(state)
    _log.exception("request %s: %s", name, what)
    return EngineError(f"{what}: send it again; the server's log has the trace of request {name}")


def _name(state: RequestState) -> str:
    """Return what the client calls a request, as a log may show it."""
    try:
        return repr(printable(state.sink.request_id))
    except Exception:  # noqa: BLE001  a sink may be what has failed
        return "without a name"
