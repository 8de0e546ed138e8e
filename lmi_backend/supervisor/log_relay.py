"""Keep who writes a log from waiting for who reads it.

A reader may hang: a paused terminal, a log collector without a disk. A program that writes to its
pipe then hangs at its next line. Behind a relay it writes to a pipe that is always read.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.threads import guarded_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STANDARD_ERROR: Final = 2
KEPT_BYTES: Final = 4 << 20
"""Of lines that wait for their reader; then the oldest are dropped."""
_READ_BYTES: Final = 1 << 16
# What is written to a pipe in one piece, so that no line of ours comes between.
_ATOMIC_BYTES: Final = select.PIPE_BUF
_END_SECONDS: Final = 1.0


def log_options(descriptor: int) -> dict[str, Any]:
    """Return the options of `subprocess.Popen` by which a program logs.

    Triton logs to standard output from 25.06 on (common#138), among what we print there.
    """
    return {
        "stdin": subprocess.DEVNULL,
        "stdout": descriptor,
        "stderr": subprocess.STDOUT,
        # Its own session: Ctrl-C is ours to handle, the program must not hear it.
        "start_new_session": True,
        # SIGPIPE stays ignored: the reader of the log may leave.
        "restore_signals": False,
    }


@contextlib.contextmanager
def relaying(
    target: int, kept: int = KEPT_BYTES, change: Callable[[bytes], bytes] = bytes
) -> Iterator[int]:
    """Give a descriptor for writing, whose lines are copied to `target` until the block is left.

    Lines that remain then have a moment to be read.

    Args:
        target: a descriptor.
        kept: bytes of lines that may wait.
        change: returns what is to be written of some lines.
    """
    source, descriptor = os.pipe()
    relay = _Relay(source, target, kept, change)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
        relay.close()


class _Relay:
    def __init__(
        self, source: int, target: int, kept: int, change: Callable[[bytes], bytes]
    ) -> None:
        self._source, self._target, self._most = source, target, kept
        self._change = change
        self._kept: deque[bytes] = deque()
        self._size = self._dropped = 0
        self._rest = b""
        """The beginning of a line whose end has not come."""
        self._is_over = False
        self._changed = threading.Condition()
        self._threads = [
            guarded_thread(name, work)
            for name, work in (("lmi-log-in", self._read), ("lmi-log-out", self._write))
        ]
        for each in self._threads:
            each.start()

    def close(self) -> None:
        """Wait a moment until all programs have exited and their lines are read."""
        reader, writer = self._threads
        reader.join(_END_SECONDS)
        with self._changed:
            self._is_over = True
            self._changed.notify()
        writer.join(_END_SECONDS)

    def _read(self) -> None:
        while data := os.read(self._source, _READ_BYTES):
            data = self._rest + data
            end = data.rfind(b"\n") + 1
            if not end and len(data) > _READ_BYTES:
                end = len(data)
            self._rest = data[end:]
            self._keep(data[:end])
        self._keep(self._rest)
        os.close(self._source)

    def _keep(self, data: bytes) -> None:
        if not (data := self._change(data)):
            return
        with self._changed:
            self._kept.append(data)
            self._size += len(data)
            while self._size > self._most:
                oldest = self._kept.popleft()
                self._size -= len(oldest)
                self._dropped += oldest.count(b"\n")
            self._changed.notify()

    def _write(self) -> None:
        while data := self._take():
            for piece in _pieces(data):
                # The reader has left, or the disk is full: a server outlives its log.
                with contextlib.suppress(OSError):
                    self._write_all(piece)

    def _take(self) -> bytes:
        """Wait for lines, and return them; nothing at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._kept or self._is_over)
            if not self._kept:
                return b""
            data, dropped = self._kept.popleft(), self._dropped
            self._size -= len(data)
            self._dropped = 0
        if not dropped:
            return data
        text = f"lmi-backend: {dropped} lines of the log were not read and are lost\n"
        return text.encode() + data

    def _write_all(self, data: bytes) -> None:
        while data:
            # Whoever shares it may have made it non-blocking.
            select.select([], [self._target], [])
            with contextlib.suppress(BlockingIOError):
                data = data[os.write(self._target, data) :]


def _pieces(data: bytes) -> Iterator[bytes]:
    """Yield whole lines, together where they can be written in one piece."""
    begin = 0
    while begin < len(data):
        end = data.rfind(b"\n", begin, begin + _ATOMIC_BYTES) + 1
        if not end:
            end = data.find(b"\n", begin) + 1 or len(data)
        yield data[begin:end]
        begin = end
