"""Limits of the machine that stop a program: told as such, and not as a fault of the code."""

from __future__ import annotations

import errno
import resource
import threading
from typing import Final

from lmi_backend.errors import ConfigurationError

THREADS: Final = 112
"""A server with one small model starts 95 on two cores."""
FILES: Final = 128
_OF_THE_MACHINE: Final = frozenset({
    errno.EAGAIN, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM,
    errno.ENOSPC, errno.EROFS,
})  # fmt: skip
_NO_THREAD: Final = "can't start new thread"
_MORE_THREADS: Final = (
    "raise `ulimit -u` (processes) and `-v` (memory), or the container's limit of processes (pids)"
)


def machine_problem(error: BaseException) -> str:
    """Return what the machine lacks, in one line; empty for an error of another kind."""
    if isinstance(error, MemoryError):
        return "no memory is left"
    if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
        return f"no further thread can be started; {_MORE_THREADS}"
    if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
        place = error.filename2 or error.filename
        return f"{place}: {error.strerror}" if place else str(error.strerror)
    return ""


def check_limits() -> None:
    """Try to have what a small server needs: Triton aborts where it gets no thread.

    Raises:
        ConfigurationError: there are fewer threads or files.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= files < FILES:
        text = f"{files} files may be open, and a server needs {FILES}; raise `ulimit -n`"
        raise ConfigurationError(text)
    released = threading.Event()
    started: list[threading.Thread] = []
    try:
        for _ in range(THREADS):
            thread = threading.Thread(target=released.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError as error:
        text = f"{len(started)} more threads can be started, and a server needs {THREADS}"
        raise ConfigurationError(f"{text}; {_MORE_THREADS}") from error
    finally:
        released.set()
        for thread in started:
            thread.join()
