"""Kill a stub whose server has died, from a process outside of it.

A stub that loses its server calls exit() of C, which hangs while Python threads wait inside a send.
A thread that sends a metric to the dead server may hold the interpreter for ever. So no Python of
the stub can be trusted to end it. Workers live as long as the sockets of their stub, but those that
the next stub may adopt. This file runs as a program of its own, with the standard library only.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_log = logging.getLogger(__name__)

_LAST_SECONDS: Final = 10.0


def start_guard(model: str, server: int, files: Iterable[Path]) -> None:
    """Start the process that kills this stub when the server dies.

    `lmi-backend serve` does that too, but it may have been killed with its server.

    Args:
        model: what it is called in the log.
        server: the process that started this one.
        files: what the server would remove after the stub's end.
    """
    # The stub's interpreter is embedded: it may know of no program.
    python = sys.executable or shutil.which("python3")
    if not python:
        _log.warning("%s: no python3 on PATH: if tritonserver dies, its stub may stay", model)
        return
    try:
        descriptors = os.pidfd_open(server), os.pidfd_open(os.getpid())
    except ProcessLookupError:
        # It died while this process began, and nobody asks for the model any more.
        _remove(map(str, files))
        os.kill(os.getpid(), signal.SIGKILL)
        raise
    try:
        subprocess.Popen(  # noqa: S603  our own program
            [python, "-I", "-S", __file__, *map(str, descriptors), model, *map(str, files)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=descriptors,
            # Out of reach of a signal to the server's process group.
            start_new_session=True,
        )
    except OSError as error:
        _log.warning("%s: if tritonserver dies, its stub may stay: %s", model, error)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def main(arguments: list[str]) -> None:
    """Wait, which costs nothing; the stub's end while its server lives is none of our business.

    Args:
        arguments: descriptors of server and stub, the model's name, and files of the stub that the
            server would have removed.
    """
    server, stub = int(arguments[0]), int(arguments[1])
    ended = _ended(server, stub)
    if server not in ended:
        return
    if stub not in ended:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(stub, signal.SIGKILL)
        _ended(stub, seconds=_LAST_SECONDS)
        text = f"lmi-backend: {arguments[2]}: tritonserver has exited, and its stub was killed\n"
        # Whoever reads the log may have ended as well.
        with contextlib.suppress(OSError, AttributeError):
            os.write(sys.stderr.fileno(), text.encode("utf-8", "replace"))
    _remove(arguments[3:])


def _remove(paths: Iterable[str]) -> None:
    for path in paths:
        # A `serve` that lives removes them too.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _ended(*processes: int, seconds: float | None = None) -> list[int]:
    """Wait until one of some processes exits; return those that have."""
    # Not select, which takes no descriptor above 1023: a stub may inherit a thousand connections.
    ends = select.poll()
    for process in processes:
        ends.register(process, select.POLLIN)
    return [process for process, _ in ends.poll(None if seconds is None else seconds * 1000)]


if __name__ == "__main__":
    main(sys.argv[1:])
