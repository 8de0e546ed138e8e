"""A server's processes, shared memory and files: found after its death, and removed after ours."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from lmi_backend.ipc.survivor import places
from lmi_backend.supervisor.front_end import PROGRAM
from lmi_backend.supervisor.installation import STUB
from lmi_backend.threads import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lmi_backend.supervisor.shared_names import SharedNames

GUARD: Final = "lmi-guard"
"""Name of the process that removes what `serve` leaves; at most 15 bytes (proc(5), comm)."""
_WORKER_MODULE: Final = "lmi_backend.worker.main"
_PROGRAMS: Final = ("/tritonserver", f"/{STUB}")
_KILL_SECONDS: Final = 5
# Within it a stub that has let its model go exits, and tritonserver takes notice of one that died.
_NOTICE_SECONDS: Final = 5.0
_WAIT4: Final = {"x86_64": 61, "aarch64": 260}.get(os.uname().machine)
"""Number of the kernel's call, as `syscall` of proc(5) has it."""
_SET_DEATH_SIGNAL: Final = 1
_libc = ctypes.CDLL(None)
_libc.prctl.argtypes = [ctypes.c_int, ctypes.c_ulong]


def stubs_of(server: int) -> dict[str, psutil.Process]:
    """Return the living stubs of a server by model: their second argument names its model.py."""
    try:
        children = psutil.Process(server).children()
    except psutil.Error:
        return {}
    argvs = ((child, argv_of(child)) for child in children)
    return {
        argv[1].split("/")[-3]: child for child, argv in argvs if argv and argv[0].endswith(STUB)
    }


class StubStarts:
    """Looks for starts of stubs that would never end: their server waits for the wrong thing.

    24.10 waits for ever for a stub that was killed at a bad moment of its start, or whose program
    could not be run. A stub that got no processor for a second of its start lives, and Triton waits
    for its exit. All children of a server are stubs.
    """

    def __init__(self, server: int) -> None:
        self._server = server
        self._since: dict[tuple[psutil.Process, bool], float] = {}

    def has_dead_one(self) -> bool:
        """Tell whether a stub is dead and its server takes no notice; kill what it waits for."""
        now, awaited = time.monotonic(), self._awaited()
        try:
            children = [(each, lives(each)) for each in psutil.Process(self._server).children()]
        except psutil.Error:
            return False
        waits = [key for key in children if not key[1] or key[0].pid in awaited]
        self._since = {key: self._since.get(key, now) for key in waits}
        late = [key for key, since in self._since.items() if now - since > _NOTICE_SECONDS]
        send_kill(process for process, is_alive in late if is_alive)
        return not all(is_alive for _, is_alive in late)

    def _awaited(self) -> set[int]:
        """Return the processes for whose exit a thread of the server waits."""
        awaited = set()
        for path in Path(f"/proc/{self._server}/task").glob("*/syscall"):
            # Of a thread that runs, it is one word.
            with contextlib.suppress(OSError, ValueError):
                number, pid, *_ = path.read_text("ascii").split()
                awaited |= {int(pid, 16)} if int(number) == _WAIT4 else set()
        return awaited


def lives(process: psutil.Process | None) -> bool:
    try:
        return process is not None and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def wait_for_ends(processes: Iterable[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Wait until processes have exited; return those that still run when the time is over.

    An exited process may stay a zombie for seconds, until its new parent waits for it.
    """
    waited = list(processes)
    wait_until(lambda: not any(map(lives, waited)), seconds)
    return list(filter(lives, waited))


def running(programs: tuple[str, ...], mark: str) -> list[psutil.Process]:
    """Return the processes of this user that run a program and have a mark in their arguments.

    Any user may read the mark, and start a process that bears it.

    Args:
        programs: suffixes of a program's name, which is the first argument, or python's third.
    """
    return [
        process
        for process in psutil.process_iter(["cmdline", "uids"])
        # An attribute that cannot be read is None.
        if (argv := process.info["cmdline"])
        and (users := process.info["uids"])
        and users.real == os.getuid()
        and any(argument.endswith(programs) for argument in argv[:3])
        and any(mark in argument for argument in argv)
    ]


def with_children(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    family = {}
    for process in processes:
        family[process.pid] = process
        try:
            family |= {child.pid: child for child in process.children(recursive=True)}
        except psutil.Error:
            continue
    return list(family.values())


def argv_of(process: psutil.Process) -> list[str]:
    try:
        argv: list[str] = process.cmdline()
    except psutil.Error:
        return []
    return argv


@dataclass(frozen=True)
class Traces:
    """Processes, shared memory and files of one `lmi-backend serve`.

    Its workers have the run folder in their command lines, server and stubs the names' prefix.
    """

    run: Path
    names: SharedNames

    def processes(self) -> list[psutil.Process]:
        """Return the server and all below it, also what a dead server or stub left behind."""
        return with_children(running(_PROGRAMS, self.names.prefix) + self.workers())

    def stubs(self) -> list[psutil.Process]:
        return running((f"/{STUB}",), self.names.prefix)

    def workers(self) -> list[psutil.Process]:
        return running((_WORKER_MODULE,), str(self.run))

    def survivors(self) -> list[psutil.Process]:
        """Return the workers that the next stub may take over, and all below them."""
        records = [place.read() for place in places(self.run)]
        left = {each.worker.pid for each in records if each is not None and each.worker.lives}
        return with_children(each for each in self.workers() if each.pid in left)

    def end(self) -> None:
        kill(self.processes() + with_children(running((PROGRAM,), str(self.run))))
        self.names.give_back()
        shutil.rmtree(self.run, ignore_errors=True)


def kill(processes: Iterable[psutil.Process]) -> None:
    """Kill processes and wait for their end, until they are no zombies either."""
    left = list(processes)
    send_kill(left)
    psutil.wait_procs(left, timeout=_KILL_SECONDS)


def send_kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def end_with(parent: int) -> None:
    """Let the kernel kill this process with the thread that has made it.

    For a child, before it loads a program; its parent may have died meanwhile.
    """
    _libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


@contextlib.contextmanager
def guarded(traces: Traces) -> Iterator[None]:
    """Remove all traces when the block or this process stops, however it stops.

    A process waits for that. If it is killed too, the kernel kills the server, whose stubs and
    workers end by themselves. Forks: call it while this process has one thread.
    """
    guard_end, own_end = os.pipe()
    guard = os.fork()
    if guard == 0:
        _guard(guard_end, own_end, traces)
    os.close(guard_end)
    try:
        yield
    finally:
        os.close(own_end)
        os.waitpid(guard, 0)


def _guard(own: int, other: int, traces: Traces) -> None:
    """Wait until nobody holds the other end of the pipe; then end everything."""
    try:
        # Out of reach of a terminal's Ctrl-C and of a signal to the process group.
        os.setsid()
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(each, signal.SIG_IGN)
        Path("/proc/self/comm").write_text(GUARD, encoding="ascii")
        os.close(other)
        os.read(own, 1)
        traces.end()
    finally:
        os._exit(0)
