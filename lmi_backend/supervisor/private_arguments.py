"""Start a program with arguments that other users of this machine cannot read.

Every user may read a process's command line (/proc/PID/cmdline), only its own user its environment.
A key on the command line is thus in the environment, and the program's own list of arguments points
there: it is changed while the program is stopped, just loaded, before its first instruction.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct
import subprocess
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from io import FileIO

REDACTED: Final = "***"

_TRACE_ME: Final = 0
_DETACH: Final = 17
_START_STACK: Final = 28
"""Field of /proc/PID/stat, counted from one."""
_WORD: Final = struct.Struct("@P")
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def start_privately(
    argv: Sequence[str],
    private: Mapping[str, str],
    environment: Mapping[str, str],
    prepare: Callable[[], None],
    **options: Any,
) -> subprocess.Popen[bytes]:
    """Start a program whose private arguments other users cannot read.

    `private` has the variable that replaces an argument of `argv`; `prepare` is called in the new
    process, before it loads the program.

    Raises:
        OSError: it cannot be started like that; nothing runs.
    """
    try:
        process = subprocess.Popen(  # noqa: S603  the caller's own arguments
            argv,
            env=dict(environment),
            preexec_fn=partial(_prepare, prepare),  # noqa: PLW1509  a few calls of the C library
            **options,
        )
    except subprocess.SubprocessError as error:
        raise PermissionError(errno.EPERM, "ptrace is not permitted") from error
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        _require(os.WIFSTOPPED(status), "it did not stop when it was loaded")
        _replace(process.pid, list(argv), private, list(environment))
        is_free = not _libc.ptrace(_DETACH, process.pid, None, None)
        _require(is_free, "ptrace cannot let it run")
    except OSError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()
        raise
    return process


def _prepare(prepare: Callable[[], None]) -> None:
    prepare()
    if _libc.ptrace(_TRACE_ME, 0, None, None):
        raise OSError(ctypes.get_errno(), "ptrace")


def _replace(
    process: int, argv: Sequence[str], private: Mapping[str, str], names: Sequence[str]
) -> None:
    """Let arguments point into the environment.

    The stack of a program that has just been loaded begins with the number of its arguments. Their
    addresses follow, then 0, and the addresses of its environment in their original order (System V
    ABI).
    """
    fields = Path(f"/proc/{process}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    # The first field after the name is the third.
    stack = int(fields[_START_STACK - 3])
    with open(f"/proc/{process}/mem", "r+b", buffering=0) as memory:
        count = _read(memory, stack)
        _require(count == len(argv), "its arguments are not where they are expected")
        variables = stack + (len(argv) + 2) * _WORD.size
        for name, argument in private.items():
            address = _read(memory, variables + names.index(name) * _WORD.size)
            prefix = f"{name}=".encode()
            memory.seek(address)
            is_there = memory.read(len(prefix)) == prefix
            _require(is_there, "its environment is not where it is expected")
            memory.seek(stack + (1 + argv.index(argument)) * _WORD.size)
            memory.write(_WORD.pack(address + len(prefix)))


def _require(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise OSError(errno.ENOEXEC, otherwise)


def _read(memory: FileIO, address: int) -> int:
    memory.seek(address)
    (value,) = _WORD.unpack(memory.read(_WORD.size))
    return int(value)
