"""Send our log, and the workers' lines, to Triton's log.

A message costs 50 to 100 µs on the server thread that also hands out responses. So no token is
logged, and little of a request.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import triton_python_backend_utils as pb_utils

from lmi_backend.printable import cut, printable
from lmi_backend.redaction import Redactor

if TYPE_CHECKING:
    from lmi_backend.endpoint.state import LogLine

_ROOT = logging.getLogger("lmi_backend")

# A failed load quotes 30 of a worker's lines, of 8 KiB at most.
_LONGEST = 1 << 18
_LINES: Final = 200
_LINE_LETTERS: Final = 4000
"""Characters of a line; a traceback is one."""


class RecentLog:
    """The last lines, for those who look at the model."""

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque(maxlen=_LINES)
        self._numbers = itertools.count(1)

    def add(self, created: float, level: str, text: str) -> None:
        self._lines.append((next(self._numbers), created, level, cut(text, _LINE_LETTERS)))

    def after(self, number: int) -> list[LogLine]:
        return [line for line in self._lines.copy() if line[0] > number]

    def rewrite(self, change: Callable[[str], str]) -> None:
        """Change the texts of all lines, when more secrets are known."""
        lines = [(*line[:3], change(line[3])) for line in self._lines.copy()]
        self._lines = deque(lines, maxlen=_LINES)


RECENT: Final = RecentLog()
"""Of this process, which serves one model."""


def attach() -> None:
    _ROOT.setLevel(logging.INFO)
    _ROOT.propagate = False
    _ROOT.handlers = [_to_triton(Redactor(os.environ))]


def keep_out(secrets: Iterable[tuple[str, str]]) -> None:
    """Keep the secrets of a model's options out of the log too; they are known after `attach`."""
    redact = Redactor(os.environ, secrets)
    _ROOT.handlers = [_to_triton(redact)]
    RECENT.rewrite(redact)


def redacted(text: str) -> str:
    for handler in _ROOT.handlers:
        if isinstance(handler.formatter, _Formatter):
            return handler.formatter.redact(text)
    return Redactor(os.environ)(text)


def detach() -> None:
    """Log to standard error from now on: Triton no longer reads the stub's messages."""
    handler = logging.StreamHandler(sys.stderr)
    for existing in _ROOT.handlers:
        handler.setFormatter(existing.formatter)
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


def _to_triton(redact: Redactor) -> logging.Handler:
    handler = _TritonHandler()
    handler.setFormatter(_Formatter(redact))
    return handler


class _Formatter(logging.Formatter):
    """Writes a record, its traceback included, without secrets."""

    def __init__(self, redact: Redactor) -> None:
        super().__init__()
        self.redact = redact

    def format(self, record: logging.LogRecord) -> str:
        return self.redact(super().format(record))


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
