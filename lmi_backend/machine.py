"""What a machine lacks: told as such, and not as a fault of the code.

The package is on no index, so `pip install lmi-backend[extra]` works nowhere; what its extras bring
is on the usual one.
"""

from __future__ import annotations

import errno
import re
import resource
import shlex
import threading
from importlib.metadata import PackageNotFoundError, requires
from typing import Final

from lmi_backend.errors import ConfigurationError

_NAME: Final = "lmi-backend"


def pip_command(extra: str) -> str:
    """Return the command that installs what an extra of this package brings."""
    return f"`pip install {' '.join(map(shlex.quote, _requirements(extra)))}`"


def _requirements(extra: str) -> list[str]:
    try:
        declared = requires(_NAME) or []
    except PackageNotFoundError:
        # Run from a folder, as the stub may: then somebody has the sources.
        return [f"{_NAME}[{extra}]"]
    parts = (each.partition(";") for each in declared)
    return [
        requirement.strip()
        for requirement, _, marker in parts
        if re.search(rf"\bextra == ['\"]{re.escape(extra)}['\"]", marker)
    ]


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
