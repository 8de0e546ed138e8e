"""Which files of the package a run meets, in the order in which it meets them.

As a program it is an interpreter that notes them: `walks.py -m MODULE …`, into the file $WALK_LOG.
"""

import os
import runpy
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

LOG = "WALK_LOG"
BEGIN = signal.SIGWINCH
"""Signal at which a process with such an interpreter begins a new walk: an empty line."""
_BEATS = "worker/heartbeats.py"
_OURS = f"{os.sep}lmi_backend{os.sep}"


class Walk:
    """Notes the files whose functions are called in this process.

    Args:
        role_of: the role of a thread, by its name; an empty one is not followed.
    """

    def __init__(self, role_of: Callable[[str], str]) -> None:
        self.met: dict[str, list[str]] = {}
        """Role to files, each as often as it is met after another."""
        self._role_of, self._is_on = role_of, False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """See the calls of this thread, and of those that start meanwhile."""
        for install in (sys.setprofile, threading.setprofile):
            install(self._see)
        try:
            yield
        finally:
            for install in (sys.setprofile, threading.setprofile):
                install(None)

    @contextmanager
    def followed(self) -> Iterator[dict[str, list[str]]]:
        self.met, self._is_on = {}, True
        try:
            yield self.met
        finally:
            self._is_on = False

    def _see(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self._is_on or event != "call" or _OURS not in (path := frame.f_code.co_filename):
            return
        if role := self._role_of(threading.current_thread().name):
            met, name = self.met.setdefault(role, []), path.rpartition(_OURS)[2]
            if met[-1:] != [name]:
                met.append(name)


def interpreter(folder: Path) -> Path:
    """Write a program that runs this interpreter as this module does; return its path."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "$@"\n', encoding="utf-8")
    path.chmod(0o700)
    return path


def _is_beat(frame: FrameType | None) -> bool:
    """Tell whether a call is for a heartbeat, which may come at any moment of a walk."""
    while frame and not frame.f_code.co_filename.endswith(_BEATS):
        frame = frame.f_back
    return frame is not None


def _note_calls() -> None:
    descriptor = os.open(os.environ[LOG], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    latest = ""

    def begin(*_: object) -> None:
        nonlocal latest
        latest = ""
        os.write(descriptor, b"\n")

    def see(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal latest
        path = frame.f_code.co_filename
        if event == "call" and path != latest and _OURS in path and not _is_beat(frame):
            latest = path
            os.write(descriptor, f"{path.rpartition(_OURS)[2]}\n".encode())

    signal.signal(BEGIN, begin)
    threading.setprofile(see)
    sys.setprofile(see)


if __name__ == "__main__":
    # As an interpreter's own, the first argument is the module, and its folder no place of modules.
    sys.argv[:2] = []
    sys.path.pop(0)
    _note_calls()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
