"""Which Python interpreter of this machine an environment is made of: the fastest that can be used.

One that was built without profile-guided optimization, as pyenv builds them, takes half more CPU
for everything. Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

OLDEST, NEWEST = (3, 11), (3, 12)
"""What the locks are for: on 3.13 numpy < 2 has no build, and the wheel's tritonserver needs it."""
WORTH = 1.2
"""An interpreter that is fewer times faster than the one that was called is left alone."""
_FOLDERS = ("/usr/local/bin", "/usr/bin")
_SECONDS = 20
_PROBE = """
import ctypes, json, os, sys, sysconfig, time

class Step:
    __slots__ = ("value",)
    def __init__(self, value):
        self.value = value
    def add(self, other):
        return self.value + other

def work():
    seen, total = {}, 0
    for number in range(60000):
        total += Step(number).add(1)
        seen[number & 255] = (total, str(number))

def seconds():
    began = time.process_time()
    work()
    return time.process_time() - began

lacks = []
try:
    import ensurepip, venv
except ImportError:
    lacks.append("the module ensurepip")
name = sysconfig.get_config_var("INSTSONAME") or ""
if ".so" in name:
    for each in (os.path.join(sysconfig.get_config_var("LIBDIR") or "", name), name):
        try:
            ctypes.CDLL(each)
            break
        except OSError:
            pass
    else:
        lacks.append(name)
base = getattr(sys, "_base_executable", "") or sys.executable
print(json.dumps([base, sys.version_info[:2], min(seconds() for _ in range(5)), lacks]))
"""


class InterpreterError(Exception):
    """No interpreter can be used; the message says what is accepted."""


@dataclass(frozen=True)
class Interpreter:
    """What a probe found."""

    path: str
    version: tuple[int, int]
    seconds: float
    """CPU time of a loop of calls, the shortest of five."""
    lacks: tuple[str, ...]
    """What an environment, or Triton's stub, would miss."""


def choose(called: str = sys.executable) -> tuple[str, list[str]]:
    """Return the interpreter to use, and what a user should know of the choice, a line each.

    Raises:
        InterpreterError: none of those found is of a version that the locks are for.
    """
    found = _probed([called, *_candidates()])
    return best(found) if found else (called, [])


def best(found: Sequence[Interpreter]) -> tuple[str, list[str]]:
    """Return the one to use of those found, the first being the one that was called."""
    supported = [each for each in found if OLDEST <= each.version <= NEWEST]
    if not supported:
        check(found[0].path, found[0].version)
    first = supported[0]
    usable = [each for each in supported if not each.lacks]
    chosen = min(usable, key=lambda each: each.seconds, default=first)
    if not first.lacks and first.seconds < WORTH * chosen.seconds:
        chosen = first
    notes = []
    if chosen.path != found[0].path:
        reason = f"{found[0].seconds / chosen.seconds:.1f} times as fast as {found[0].path}"
        if found[0] not in supported:
            reason = f"{found[0].path} is Python {_text(found[0].version)}, which is not supported"
        elif found[0].lacks:
            reason = f"{found[0].path} lacks {' and '.join(found[0].lacks)}"
        notes.append(f"{chosen.path} is used: {reason}; `make PYTHON=…` uses another")
    for each in supported:
        if each.lacks and WORTH * each.seconds <= chosen.seconds:
            times = f"{chosen.seconds / each.seconds:.1f} times as fast as {chosen.path}"
            notes.append(f"{each.path} would be {times}, but lacks {' and '.join(each.lacks)}")
    return chosen.path, notes


def check(path: str, version: tuple[int, int]) -> None:
    """Refuse an interpreter that the locks are not for.

    Raises:
        InterpreterError: what it is, and what would be accepted.
    """
    if not OLDEST <= version <= NEWEST:
        accepted = f"{_text(OLDEST)} or {_text(NEWEST)}"
        message = f"{path} is Python {_text(version)}; accepted: {accepted}"
        raise InterpreterError(f"{message}, for example `make PYTHON=python3.11 …`")


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _candidates() -> list[str]:
    names = ["python3", *(f"python3.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1))]
    folders = dict.fromkeys([*os.environ.get("PATH", "").split(os.pathsep), *_FOLDERS])
    paths = [Path(folder) / name for folder in folders if folder for name in names]
    return [str(path) for path in paths if os.access(path, os.X_OK)]


def _probed(paths: Iterable[str]) -> list[Interpreter]:
    """Return what ran, each once, however many names it has."""
    found: dict[str, Interpreter] = {}
    for path in dict.fromkeys(os.path.realpath(path) for path in paths):
        if path in found:
            continue
        try:
            output = subprocess.run(
                [path, "-I", "-c", _PROBE],
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=True,
            ).stdout
            base, version, seconds, lacks = json.loads(output)
        except (OSError, subprocess.SubprocessError, ValueError):
            continue
        base = os.path.realpath(base)
        found.setdefault(base, Interpreter(base, tuple(version), seconds, tuple(lacks)))
    return list(found.values())
