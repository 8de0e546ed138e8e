"""The front end's log: lines are written by a thread of their own, those of a moment at once."""

from __future__ import annotations

import atexit
import contextlib
import logging
import re
import sys
import threading
from typing import TYPE_CHECKING, Final, TextIO
from urllib.parse import quote

from lmi_backend.printable import printable

if TYPE_CHECKING:
    from types import TracebackType

    _ExcInfo = (
        tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    )

_FRONT_END: Final = "lmi_backend.frontend.app"
_MOST_LINES: Final = 10_000
_GATHER_SECONDS: Final = 0.05
_TRACE_LINE: Final = 2_000
_ESCAPE: Final = len(r"\U00000000")
_PLAIN_IN_A_FIELD: Final = "/:+@~,;"
_IS_PLAIN: Final = re.compile(r"[\w.~/:+@,;-]*", re.ASCII).fullmatch


def as_field(text: str) -> str:
    """Return a client's text as the value of a field of a line: it cannot begin another field."""
    return text if _IS_PLAIN(text) else quote(text, safe=_PLAIN_IN_A_FIELD)


class LineFormatter(logging.Formatter):
    """Writes a record as one line, also if a client wrote line breaks into it.

    Lines of a trace begin with blanks: an exception's text may have lines of its own.
    """

    default_msec_format = "%s.%03d"

    def format(self, record: logging.LogRecord) -> str:
        # Another handler's may be kept there.
        record.exc_text = None
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        return line if line.isprintable() else printable(line, len(line) * _ESCAPE)

    def formatException(self, ei: _ExcInfo) -> str:
        lines = super().formatException(ei).split("\n")
        return "\n".join(f"  {printable(line, _TRACE_LINE)}" for line in lines)


class BatchingHandler(logging.Handler):
    """Never waits for who reads the log; lines that do not fit are lost.

    A line is written within `_GATHER_SECONDS`. One write for each would cost a quarter of a short
    request.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: list[str] = []
        self._has_lines = threading.Event()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._lines) < _MOST_LINES:
            self._lines.append(self.format(record))
            if not self._has_lines.is_set():
                self._has_lines.set()

    def close(self) -> None:
        """Write what is left, as far as it is read within a moment, and end."""
        self._is_over.set()
        self._has_lines.set()
        self._thread.join(timeout=1)
        super().close()

    def _run(self) -> None:
        is_over = False
        while not is_over:
            self._has_lines.wait()
            self._has_lines.clear()
            is_over = self._is_over.wait(_GATHER_SECONDS)
            with contextlib.suppress(OSError, ValueError):  # There is nowhere to say it.
                self._stream.write("".join(f"{line}\n" for line in self._take()))
                self._stream.flush()

    def _take(self) -> list[str]:
        self.acquire()
        try:
            lines, self._lines = self._lines, []
        finally:
            self.release()
        return lines


def log_to_stderr(*, is_verbose: bool = False) -> None:
    """Log to standard error from a thread.

    Args:
        is_verbose: whether the front end's own lines for debugging are written, none of libraries.
    """
    # What no line says is not found out for each: docs.python.org/3/howto/logging.html#optimization
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = BatchingHandler(sys.stderr)
    handler.setFormatter(LineFormatter("%(asctime)s %(levelname)-7s frontend: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    if is_verbose:
        logging.getLogger(_FRONT_END).setLevel(logging.DEBUG)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    atexit.register(handler.close)
