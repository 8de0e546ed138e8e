"""The processes, shared memory and files of a server, found even after its process has died."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from lmi_backend.ipc.survivor import places
from lmi_backend.supervisor.beating_process import PROGRAM
from lmi_backend.supervisor.installation import STUB
from lmi_backend.supervisor.processes import running, with_children

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lmi_backend.supervisor.shared_names import SharedNames

_WORKER_MODULE: Final = "lmi_backend.worker.main"
_PROGRAMS: Final = ("/tritonserver", f"/{STUB}")
_SECONDS: Final = 5


@dataclass(frozen=True)
class Traces:
    """Processes, shared memory and files of one `lmi-backend serve`.

    Args:
        run: its private folder, which its workers have in their command lines.
        names: of its shared memory; server and stubs have their prefix in their command lines.
    """

    run: Path
    names: SharedNames

    def processes(self) -> list[psutil.Process]:
        """Return the server and all below it, also what a dead server or stub left behind."""
        return with_children(running(_PROGRAMS, self.names.prefix) + self.workers())

    def stubs(self) -> list[psutil.Process]:
        """Return the stubs of all models."""
        return running((f"/{STUB}",), self.names.prefix)

    def workers(self) -> list[psutil.Process]:
        """Return the workers of all models."""
        return running((_WORKER_MODULE,), str(self.run))

    def survivors(self) -> list[psutil.Process]:
        """Return the workers that the next stub may take over, and all below them."""
        records = [place.read() for place in places(self.run)]
        left = {each.worker.pid for each in records if each is not None and each.worker.lives}
        return with_children(each for each in self.workers() if each.pid in left)

    def remove_shared_memory(self) -> None:
        """Remove what a killed stub or server left in /dev/shm."""
        self.names.remove()

    def end(self) -> None:
        """Kill every process and remove every file."""
        kill(self.processes() + with_children(running((PROGRAM,), str(self.run))))
        self.names.give_back()
        shutil.rmtree(self.run, ignore_errors=True)


def kill(processes: Iterable[psutil.Process]) -> None:
    """Kill processes and wait for their end, until they are no zombies either."""
    found = list(processes)
    send_kill(found)
    psutil.wait_procs(found, timeout=_SECONDS)


def send_kill(processes: Iterable[psutil.Process]) -> None:
    """Kill processes."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
