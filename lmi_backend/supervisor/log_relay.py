"""The lines of all programs that `serve` starts, in one format, and who writes them never waits.

A reader may hang: a paused terminal, a log collector without a disk. A program that writes to its
pipe then hangs at its next line. Behind a relay it writes to a pipe that is always read.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import stat
import subprocess
import threading
from collections import deque
from collections.abc import Collection
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lmi_backend.printable import say
from lmi_backend.threads import guarded_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


TEXT: Final = "text"
JSON: Final = "json"
FORMATS: Final = (TEXT, JSON)

_HEAD: Final = re.compile(
    # I1126 12:01:50.430551 25647 model_lifecycle.cc:472] "loading: echo:1"
    r"(?P<letter>[IWEF])\d{4} [\d:.]{15} +\d+ (?P<file>[\w.-]+):\d+\] ?"
    # 2026-11-26 12:01:50.722 INFO    frontend: GET /ping status=503
    r"|[\d-]{10} [\d:]{8}\.\d{3} (?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) *frontend: "
    r"|lmi-backend: "
)
"""The beginning of a line of Triton, of the front end and of `lmi-backend`."""
_LEVELS: Final = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL"}
_STUB: Final = "logs.py"
"""Whose helper hands the stub's lines to Triton (`triton/logs.py`)."""
_NAME: Final = re.compile(r"\[?(?:worker |request model=)?([\w.-]+)[/: ]")
"""Of a model, in a line of its stub or its engine."""
_SERVED_MODEL: Final = re.compile(r" model=([\w.-]+)")
_ALWAYS: Final = re.compile(r"request model=|worker \S+ is (not )?adopted")
_NEVER: Final = re.compile(
    # On each machine without a GPU, at the levels of warnings and errors.
    r"Unable to allocate pinned system memory|CudaDriverHelper has not been initialized"
    r"|DCGM unable to start|Failed to initialize NVML"
    # Three times of a model that cannot be loaded; `serve` says it once.
    r"|ERROR: Failed to create instance|failed to load '|Invalid argument: load failed for model"
)

TRITON: Final = "triton"
FRONT_END: Final = "frontend"
ENGINE: Final = "engine"
MODEL: Final = "model"
SERVE: Final = "serve"


class Line(NamedTuple):
    time: datetime
    level: str
    part: str
    """Which of our programs wrote it."""
    model: str
    """Whose line it is; empty if it is of no model."""
    text: str

    @property
    def is_for_screens(self) -> bool:
        """Whether the line is shown without `--verbose`."""
        if self.part == FRONT_END or self.text.endswith("(logged once)"):
            return True
        if self.part == MODEL and _ALWAYS.match(self.text):
            return True
        is_hidden = self.part == ENGINE or (self.part == TRITON and _NEVER.search(self.text))
        return not is_hidden and self.level != "INFO"

    def written(self, style: str) -> str:
        if style == JSON:
            return f"{json.dumps(self._asdict() | {'time': self.time.isoformat()})}\n"
        moment = self.time.isoformat(" ", "milliseconds")[:23]
        source = self.model if self.model and self.part in (MODEL, ENGINE) else self.part
        return f"{moment} {self.level:<7} {source}: {self.text}\n"


class LogFormat:
    """Rewrites what programs log: all of it, or what is for screens."""

    def __init__(self, style: str = TEXT, *, shows_all: bool = True) -> None:
        self._style, self._shows_all = style, shows_all
        self.models: Collection[str] = ()
        """Names by which the models' lines are known."""
        self._latest = Line(_now(), "INFO", TRITON, "", "")
        self._is_printed = shows_all

    def own(self, level: str, text: str) -> str:
        return Line(_now(), level, SERVE, self._model_of(text), text).written(self._style)

    def __call__(self, data: bytes) -> bytes:
        lines = (self._line(raw) for raw in data.decode("utf-8", "replace").splitlines())
        return "".join(
            line.written(self._style) for line in lines if self._is_printed and line.text
        ).encode()

    def _line(self, raw: str) -> Line:
        """Return a line; one without a head of its own belongs to the line before it."""
        head = _HEAD.match(raw)
        text = raw[head.end() :] if head else raw
        level, part, model = "INFO", FRONT_END, ""
        if head and head["letter"]:
            level, text = _LEVELS[head["letter"]], _unquoted(text)
        if head is None or head["file"] == _STUB:
            # Without a head: a stub whose messages Triton no longer reads.
            part, model = ENGINE if text.startswith("[") else MODEL, self._model_of(text)
            text = text.removeprefix(f"{model}: ") if model else text
        elif head["file"]:
            part = TRITON
        else:
            level, match = head["level"] or level, _SERVED_MODEL.search(text)
            model = match[1] if match else ""
        if head is None and not model:
            return self._latest._replace(time=_now(), text=raw.rstrip())
        self._latest = line = Line(_now(), level, part, model, text)
        self._is_printed = self._shows_all or line.is_for_screens
        return line

    def _model_of(self, text: str) -> str:
        match = _NAME.match(text)
        return match[1] if match and match[1] in self.models else ""


def _unquoted(text: str) -> str:
    """Return a message of Triton without the quotes that releases from 24.07 on put around it."""
    if text[:1] == text[-1:] == '"':
        try:
            return str(json.loads(text))
        except ValueError:
            return text[1:-1]
    return text.removeprefix('"')


def _now() -> datetime:
    return datetime.now(timezone.utc).astimezone()


STANDARD_ERROR: Final = 2
BUFFER_BYTES: Final = 4 << 20
"""Of lines that wait for their reader; then the oldest are dropped."""
_READ_BYTES: Final = 1 << 16
# What is written to a pipe in one piece, so that no line of ours comes between.
_ATOMIC_BYTES: Final = select.PIPE_BUF
_END_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 1.0
"""After which a file is looked for that nothing was written to."""
_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
# To open a named pipe, or to write to it, would wait for its reader.
_MODE: Final = 0o666


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


class LogFile:
    """A file for lines, found by its name: rotation moves it, and others may delete it.

    It is made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._problem = path, ""
        self.descriptor = os.open(path, _APPEND, _MODE)
        """The same at all times."""

    def look(self) -> None:
        """Open what has the file's name now, if it is another file or none."""
        try:
            self._look()
        except OSError as error:
            if self._problem != (problem := str(error.strerror)):
                self._problem = problem
                text = f"--log-file {self._path}: {problem}; lines go to the file that was there"
                say(text, "WARNING")

    def _look(self) -> None:
        own = os.fstat(self.descriptor)
        if not stat.S_ISREG(own.st_mode):
            return
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(own, os.stat(self._path)):
                return
        opened = os.open(self._path, _APPEND, _MODE)
        os.dup2(opened, self.descriptor, inheritable=False)
        os.close(opened)
        self._problem = ""

    def close(self) -> None:
        """Close it; nobody may write to it then."""
        os.close(self.descriptor)


@contextlib.contextmanager
def relaying(target: int | LogFile, change: Callable[[bytes], bytes] = bytes) -> Iterator[int]:
    """Give a descriptor for writing, whose lines are copied to `target` until the block is left.

    Lines that remain then have a moment to be read. `change` returns what is to be written of some.
    """
    source, descriptor = os.pipe()
    relay = _Relay(source, target, change)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
        relay.close()


class _Relay:
    def __init__(
        self, source: int, target: int | LogFile, change: Callable[[bytes], bytes]
    ) -> None:
        self._source = source
        self._file = None if isinstance(target, int) else target
        self._target = target if isinstance(target, int) else target.descriptor
        self._look_seconds = None if self._file is None else _LOOK_SECONDS
        self._change = change
        self._buffer: deque[bytes] = deque()
        self._size = self._dropped = 0
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
        rest = b""  # The beginning of a line whose end has not come.
        while data := os.read(self._source, _READ_BYTES):
            data = rest + data
            end = data.rfind(b"\n") + 1
            if not end and len(data) > _READ_BYTES:
                end = len(data)
            rest = data[end:]
            self._keep(data[:end])
        self._keep(rest)
        os.close(self._source)

    def _keep(self, data: bytes) -> None:
        if not (data := self._change(data)):
            return
        with self._changed:
            self._buffer.append(data)
            self._size += len(data)
            while self._size > BUFFER_BYTES:
                oldest = self._buffer.popleft()
                self._size -= len(oldest)
                self._dropped += oldest.count(b"\n")
            self._changed.notify()

    def _write(self) -> None:
        while (data := self._take()) is not None:
            if self._file is not None:
                self._file.look()
            for piece in _pieces(data):
                # The reader has left, or the disk is full: a server outlives its log.
                with contextlib.suppress(OSError):
                    self._write_all(piece)

    def _take(self) -> bytes | None:
        """Wait for lines, and return them; none after a moment without, None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._buffer or self._is_over, self._look_seconds)
            if not self._buffer:
                return None if self._is_over else b""
            data, dropped = self._buffer.popleft(), self._dropped
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
