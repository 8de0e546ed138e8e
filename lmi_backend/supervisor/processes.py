"""Find the processes of a server; any of them may end at any time."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Iterable
from typing import Final

import psutil

from lmi_backend.supervisor.installation import STUB

_POLL_SECONDS: Final = 0.02


def stubs_of(server: int) -> dict[str, psutil.Process]:
    """Return the living stubs of a server by model: their second argument names its model.py."""
    try:
        children = psutil.Process(server).children()
    except psutil.Error:
        return {}
    found = ((child, argv_of(child)) for child in children)
    return {
        argv[1].split("/")[-3]: child for child, argv in found if argv and argv[0].endswith(STUB)
    }


def has_dead_stub(server: int) -> bool:
    """Tell whether a stub has died and its server has not taken notice.

    24.10 continues to wait for ever for one that was killed at a bad moment of its start, or whose
    program could not be run. All children of a server are stubs.
    """
    try:
        return not all(map(lives, psutil.Process(server).children()))
    except psutil.Error:
        return False


def lives(process: psutil.Process | None) -> bool:
    """Return whether a process is there and has not exited."""
    try:
        return process is not None and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def wait_for_ends(processes: Iterable[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Wait until processes have exited; return those that still run when the time is over.

    An exited process may stay a zombie for seconds, until its new parent waits for it.
    """
    end = time.monotonic() + seconds
    alive = list(processes)
    while (alive := list(filter(lives, alive))) and time.monotonic() < end:
        time.sleep(_POLL_SECONDS)
    return alive


def wait_for_an_end(processes: Iterable[psutil.Process], seconds: float) -> None:
    """Wait until one of some living processes exits, or until the time is over."""
    ended = select.poll()
    with contextlib.ExitStack() as stack:
        for process in processes:
            try:
                descriptor = os.pidfd_open(process.pid)
            except ProcessLookupError:
                return
            except OSError:
                continue  # The time will do.
            stack.callback(os.close, descriptor)
            ended.register(descriptor, select.POLLIN)
        ended.poll(seconds * 1000)


def running(programs: tuple[str, ...], mark: str) -> list[psutil.Process]:
    """Return the processes of this user that run a program and have a mark in their arguments.

    Any user may read the mark, and start a process that bears it.

    Args:
        programs: suffixes of a program's name, which is the first argument, or python's third.
    """
    with_argv = ((process, argv_of(process)) for process in psutil.process_iter())
    return [
        process
        for process, argv in with_argv
        if any(argument.endswith(programs) for argument in argv[:3])
        and any(mark in argument for argument in argv)
        and _is_ours(process)
    ]


def _is_ours(process: psutil.Process) -> bool:
    try:
        return bool(process.uids().real == os.getuid())
    except psutil.Error:
        return False


def with_children(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return processes and all below them, each once."""
    found = {}
    for process in processes:
        found[process.pid] = process
        try:
            found |= {child.pid: child for child in process.children(recursive=True)}
        except psutil.Error:
            continue
    return list(found.values())


def argv_of(process: psutil.Process) -> list[str]:
    """Return a process's command line; nothing if it has exited."""
    try:
        argv: list[str] = process.cmdline()
    except psutil.Error:
        return []
    return argv
