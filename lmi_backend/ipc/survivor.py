"""What is written down of a worker, so that the next stub finds it when its own has died.

The file is in the private folder of a `serve`, with mode 0600: it has the worker's token. The next
stub listens at a socket next to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

Files = tuple[tuple[str, int, int], ...]
"""Path, time of change and bytes of each."""

RETURN_SECONDS: Final = 60.0
"""How long a worker waits for its next stub; a server takes some seconds to start again."""

_SUFFIX: Final = ".worker"
_LARGEST: Final = 16 << 20
# Of proc(5), stat, counted from the state, which follows the name.
_STATE: Final = 0
_SESSION: Final = 3
_START: Final = 19


class OneProcess(msgspec.Struct, frozen=True, array_like=True):
    """A process, told from a later one of its number."""

    pid: int
    started: int
    """In ticks since the start of the machine."""

    @classmethod
    def of(cls, pid: int) -> OneProcess:
        fields = stat_of(pid)
        return cls(pid, int(fields[_START]) if fields else 0)

    @property
    def lives(self) -> bool:
        fields = stat_of(self.pid)
        return bool(fields) and fields[_STATE] not in "ZX" and int(fields[_START]) == self.started

    @property
    def is_replaced(self) -> bool:
        """Whether another process has its PID."""
        fields = stat_of(self.pid)
        return bool(fields) and int(fields[_START]) != self.started


class SurvivorRecord(msgspec.Struct, frozen=True, array_like=True):
    """A worker that serves, and what it may serve next."""

    worker: OneProcess
    stub: OneProcess
    """Whose it is, while that lives."""
    token: str
    key: str
    """Changes with all that a worker is started with."""
    files: Files
    """Those of the model when it was loaded."""
    shared: list[str]
    """Files in shared memory that its engine uses."""
    folder: str
    """Its private folder."""
    pool: str
    """The private folder of the stub's other workers."""
    start_seconds: float = 0.0
    """What the longest start of a worker of its model took: an adoption tells nothing of that."""


class Place:
    """Where a slot's worker is written down, and where it comes back to: `text` and a suffix."""

    def __init__(self, text: str) -> None:
        self.text, self.index = text, int(text.rpartition("-")[2])
        self.socket = Path(f"{text}.sock")
        self._record = Path(f"{text}{_SUFFIX}")

    @classmethod
    def of(cls, run: Path, model: str, index: int) -> Place:
        return cls(f"{_stem(run, model)}{index}")

    def read(self) -> SurvivorRecord | None:
        with contextlib.suppress(OSError, msgspec.MsgspecError), self._record.open("rb") as file:
            return msgspec.msgpack.decode(file.read(_LARGEST), type=SurvivorRecord)
        return None

    def write(self, record: SurvivorRecord) -> None:
        """Write a record in place of what is here."""
        # Made with mode 0600.
        descriptor, draft = tempfile.mkstemp(dir=self._record.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.msgpack.encode(record))
        Path(draft).replace(self._record)

    def clear(self) -> None:
        self._record.unlink(missing_ok=True)
        self.socket.unlink(missing_ok=True)


def places(run: Path, model: str = "") -> Iterator[Place]:
    """Yield where something is written down of a model, or of all models of a `serve`."""
    pattern = f"{_stem(run, model).name}*" if model else "worker-*"
    for path in sorted(run.glob(f"{pattern}{_SUFFIX}")):
        yield Place(str(path.with_suffix("")))


def is_served(run: Path) -> bool:
    """Tell whether the `serve` of a folder lives: it keeps the folder locked."""
    try:
        descriptor = os.open(run, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def session_of(pid: int) -> int:
    """Return the session of a process that lives; 0 for any other."""
    fields = stat_of(pid)
    return int(fields[_SESSION]) if fields and fields[_STATE] not in "ZX" else 0


def stat_of(pid: int) -> list[str]:
    """Return the fields of a process's `stat` from its state on; none if there is no process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return []
    # The name, in parentheses, may hold blanks: fields count from the last one.
    return text.rpartition(")")[2].split()


def _stem(run: Path, model: str) -> Path:
    # A model's name may be longer than a socket's path.
    return run / f"worker-{hashlib.sha256(model.encode()).hexdigest()[:16]}-"
