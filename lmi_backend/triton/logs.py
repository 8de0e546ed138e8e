"""Send our log, and the workers' lines, to Triton's log.

A message costs 50 to 100 µs on the server thread that also hands out responses. So no token is
logged, and little of a request.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable

import triton_python_backend_utils as pb_utils

from lmi_backend.endpoint.state import RECENT
from lmi_backend.printable import cut, printable
from lmi_backend.redaction import Redactor

_ROOT = logging.getLogger("lmi_backend")

# A failed load quotes 30 of a worker's lines, of 8 KiB at most.
_LONGEST = 1 << 18


class _Formatter(logging.Formatter):
    """Writes a record, its traceback included, without secrets."""

    redact: Redactor
    """Set by `attach`."""

    def format(self, record: logging.LogRecord) -> str:
        return self.redact(super().format(record))


_formatter = _Formatter()


def attach() -> None:
    _ROOT.setLevel(logging.INFO)
    _ROOT.propagate = False
    _formatter.redact = Redactor(os.environ)
    _log_to(_TritonHandler())


def keep_out(secrets: Iterable[tuple[str, str]]) -> None:
    """Keep the secrets of a model's options out of the log too; they are known after `attach`."""
    _formatter.redact = Redactor(os.environ, secrets)
    RECENT.rewrite(_formatter.redact)


def redacted(text: str) -> str:
    return _formatter.redact(text)


def detach() -> None:
    """Log to standard error from now on: Triton no longer reads the stub's messages."""
    _log_to(logging.StreamHandler(sys.stderr))


def _log_to(handler: logging.Handler) -> None:
    handler.setFormatter(_formatter)
    _ROOT.handlers = [handler]


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


def _cut(text: str) -> str:
    """Return a message as it may be logged, also if it quotes a client's text."""
    return "\n".join(printable(line, _LONGEST) for line in cut(text, _LONGEST).split("\n"))


class _TritonHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            # The stub's locale is C; Triton takes bytes that are UTF-8, which str is turned into.
            text = _cut(self.format(record))
            RECENT.add(record.created, record.levelname, text)
            if record.levelno >= logging.ERROR:
                pb_utils.Logger.log_error(text)
            elif record.levelno >= logging.WARNING:
                pb_utils.Logger.log_warn(text)
            else:
                pb_utils.Logger.log_info(text)
        except Exception:  # noqa: BLE001  a log line must not end a request
            self.handleError(record)
