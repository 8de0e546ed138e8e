"""Write exchanges into files that together stay below a bound; the oldest are removed."""

from __future__ import annotations

import json
import os
import queue
import threading
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, BinaryIO, Final

from lmi_backend.errors import ConfigurationError
from lmi_backend.printable import say
from lmi_backend.private_folders import private_folder
from lmi_backend.units import MIB

_WAITING_BYTES: Final = 128 * MIB
"""Of exchanges that are not written yet; further ones are dropped and counted."""
_FILES: Final = 8
"""At least so many files share the bound: so much of it is lost when the oldest is removed."""
_PATTERN: Final = "record-*.jsonl"


class Files:
    """Files in a folder that only this user can read, written by a thread.

    Args:
        folder: where they are.
        most: bytes that all files may have.
    """

    def __init__(self, folder: Path, most: int) -> None:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"{folder}: cannot be made: {error.strerror}") from error
        self._folder, self._most = private_folder(folder), most
        self.written = self.dropped = 0
        """Exchanges."""
        self._queue: queue.SimpleQueue[tuple[dict[str, Any], int] | None] = queue.SimpleQueue()
        self._waiting, self._lock = 0, threading.Lock()
        self._file: BinaryIO | None = None
        self._size = 0
        self._problem = ""
        self._thread = threading.Thread(target=self._write_all, daemon=True)
        self._thread.start()

    def take(self, line: dict[str, Any], size: int) -> None:
        """Have an exchange written; an empty one is too large and only counted."""
        with self._lock:
            if not line or self._waiting + size > _WAITING_BYTES:
                self.dropped += 1
                return
            self._waiting += size
        self._queue.put((line, size))

    def close(self) -> None:
        """Write what waits, and close the file."""
        self._queue.put(None)
        self._thread.join()

    def _write_all(self) -> None:
        while (item := self._queue.get()) is not None:
            line, size = item
            try:
                self._write(json.dumps(line).encode() + b"\n")
                self.written += 1
            except OSError as error:
                self._report(f"{self._folder}: cannot be written: {error.strerror}")
                self.dropped += 1
            with self._lock:
                self._waiting -= size
        if self._file is not None:
            self._file.close()

    def _report(self, problem: str) -> None:
        """Report a problem once: the disk may be full for hours."""
        if problem != self._problem:
            self._problem = problem
            say(problem, "WARNING")

    def _write(self, data: bytes) -> None:
        if len(data) > self._most:
            self.dropped += 1
            self.written -= 1
            return
        if self._file is None or self._size + len(data) > self._most // _FILES:
            self._open_next()
        self._make_room(len(data))
        assert self._file is not None  # noqa: S101  opened above
        self._file.write(data)
        self._file.flush()
        self._size += len(data)

    def _open_next(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        name = datetime.now(timezone.utc).strftime("record-%Y%m%d-%H%M%S-%f.jsonl")
        path = self._folder / name
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = open(os.open(path, flags, 0o600), "ab")  # noqa: SIM115  open until it is full
        self._size = path.stat().st_size

    def _make_room(self, size: int) -> None:
        """Remove the oldest files, but not the open one, until so many bytes more fit."""
        # Their names sort by time.
        known = [(path, path.stat().st_size) for path in sorted(self._folder.glob(_PATTERN))]
        total = sum(each for _, each in known)
        for path, each in known[:-1]:
            if total + size <= self._most:
                break
            path.unlink()
            total -= each
