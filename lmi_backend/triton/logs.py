"""Send our log, and the workers' lines, to Triton's log.

A message costs 50 to 100 µs on the server thread that also hands out responses, so nothing is
logged per token and little per request.
"""

from __future__ import annotations

import logging
import sys

import triton_python_backend_utils as pb_utils

from lmi_backend.printable import cut, printable

_ROOT = logging.getLogger("lmi_backend")

# A failed load quotes 30 of a worker's lines, of 8 KiB at most.
_LONGEST = 1 << 18


def attach() -> None:
    """Start to log to Triton."""
    _ROOT.setLevel(logging.INFO)
    _ROOT.propagate = False
    _ROOT.handlers = [_TritonHandler()]


def detach() -> None:
    """Log to standard error from now on: Triton no longer reads the stub's messages."""
    _ROOT.handlers = [logging.StreamHandler(sys.stderr)]


def log_worker_line(worker: str, line: str) -> None:
    """Log one line a worker printed, under the worker's name and at the level it shows."""
    head = line[:80]
    if "ERROR" in head or "CRITICAL" in head or "Traceback" in head:
        level = logging.ERROR
    elif "WARN" in head:
        level = logging.WARNING
    else:
        level = logging.INFO
    _ROOT.log(level, "[%s] %s", worker, line)


def _shown(text: str) -> str:
    """Return a message as it may be logged, whatever a client put into what it quotes."""
    return "\n".join(printable(line, _LONGEST) for line in cut(text, _LONGEST).split("\n"))


class _TritonHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            # The stub's locale is C; Triton takes bytes that are UTF-8, which str is turned into.
            text = _shown(self.format(record))
            if record.levelno >= logging.ERROR:
                pb_utils.Logger.log_error(text)
            elif record.levelno >= logging.WARNING:
                pb_utils.Logger.log_warn(text)
            else:
                pb_utils.Logger.log_info(text)
        except Exception:  # noqa: BLE001  a log line must not end a request
            self.handleError(record)
