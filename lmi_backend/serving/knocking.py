"""Speak to the models of a server on this machine, from a process beside it."""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING

from lmi_backend.errors import WorkerError
from lmi_backend.serving.address import door_folder, door_name
from lmi_backend.serving.door import FRAME_LIMIT
from lmi_backend.workers import messages as msg
from lmi_backend.workers.frames import FrameDecoder, encode, receive

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# For the errors of those that are cut, beyond the time that all have.
_ANSWER_SECONDS = 10.0


def find_doors(server: int, base: Path) -> list[Path]:
    """Return the doors of all models of a server, by its process id and its folder for such."""
    return sorted(door_folder(base).glob(f"{server}-*.sock"))


def is_door_of(door: Path, model: str) -> bool:
    """Tell whether a door is a model's."""
    return door.stem.partition("-")[2] == door_name(model)


def is_open(door: Path, seconds: float) -> bool:
    """Tell whether the stub behind a door answers in time."""
    return _knock(door, msg.Hello(msg.PROTOCOL, os.getpid()), seconds) is not None


class Draining:
    """Models that are being drained. The first thing that happens: they take no more requests.

    Args:
        doors: theirs.
        seconds: time that running requests have to end.
    """

    def __init__(self, doors: Iterable[Path], seconds: float) -> None:
        self._seconds = seconds
        self._cut: list[int] = []
        self._threads = [
            threading.Thread(target=self._drain, args=(door,), daemon=True) for door in doors
        ]
        for thread in self._threads:
            thread.start()

    @property
    def is_over(self) -> bool:
        """Whether nothing runs any more."""
        return not any(thread.is_alive() for thread in self._threads)

    @property
    def cut(self) -> int:
        """Requests that took too long and got an error."""
        return sum(self._cut)

    def _drain(self, door: Path) -> None:
        # One that is not answered was unloaded, or died: nothing runs there either.
        answer = _knock(door, msg.Drain(self._seconds), self._seconds + _ANSWER_SECONDS)
        if isinstance(answer, msg.Drained):
            self._cut.append(answer.cut)


def _knock(door: Path, word: msg.FromGuest, seconds: float) -> msg.ToGuest | None:
    """Say a word at a door; return what is said back, or None."""
    decoder: FrameDecoder[msg.ToGuest] = FrameDecoder(msg.ToGuest, limit=FRAME_LIMIT)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(seconds)
        try:
            connection.connect(os.fspath(door))
            connection.sendall(encode([word]))
            while not (answers := receive(connection, decoder)):
                pass
        except (WorkerError, OSError):
            return None
    return answers[0]
