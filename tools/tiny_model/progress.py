"""Progress on stderr: one line that changes on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_PLAIN_INTERVAL_S = 10.0
_LIVE_INTERVAL_S = 0.2


class Progress:
    """Tell a person how far the work is; seconds are counted from the start of the object."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """Write to `stream`, which is stderr unless told otherwise."""
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty()
        self._begin = time.monotonic()
        self._last = self._begin

    def update(self, what: str, step: int, loss: float, confidence: float) -> None:
        """Show the state of a training; a call that comes too soon after the last shows nothing."""
        now = time.monotonic()
        if now - self._last < (_LIVE_INTERVAL_S if self._live else _PLAIN_INTERVAL_S):
            return
        self._last = now
        text = f"{what}: step {step}, loss {loss:.4f}, least certain {confidence:.3f}"
        self._write(text, end="" if self._live else "\n")

    def note(self, text: str) -> None:
        """Show a line that stays."""
        self._write(text, end="\n")

    def fail(self, text: str) -> None:
        """Show why there will be no result."""
        self._write(f"error: {text}", end="\n")

    def _write(self, text: str, *, end: str) -> None:
        start = "\r\x1b[K" if self._live else ""
        self._stream.write(f"{start}[{time.monotonic() - self._begin:5.1f} s] {text}{end}")
        self._stream.flush()
