"""Workers that outlive their stub: written down by it, and taken over by the next one.

Only under `lmi-backend serve`, which starts a server again, and stops what is left of one. A worker
that does not fit is killed before another is launched: it holds the device's memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import lmi_backend
from lmi_backend.errors import LmiError
from lmi_backend.fetch.hub import folder_of
from lmi_backend.ipc.environment import RUN_DIR_VARIABLE
from lmi_backend.ipc.survivor import OneProcess, Place, SurvivorRecord, places
from lmi_backend.options.spec import CUSTOM
from lmi_backend.pool.command import LaunchContext, worker_command
from lmi_backend.pool.launch import StartingWorker, listen, start_message
from lmi_backend.pool.load_failure import LAST_LINES
from lmi_backend.pool.process import AdoptedProcess, kill_session, members

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from lmi_backend.engine_config import EngineConfig
    from lmi_backend.ipc.survivor import Files
    from lmi_backend.plan import EnginePlan
    from lmi_backend.pool.rank_group import Worker
    from lmi_backend.pool.slot import Slot

_log = logging.getLogger(__name__)

_SECONDS: Final = 30.0
"""For a worker to return, which tries every 50 ms."""


class Survivors:
    """Those of one model.

    Args:
        folder: the private folder of this stub's workers.
    """

    def __init__(self, plan: EnginePlan, model: str, folder: Path) -> None:
        self.plan, self.model, self.folder = plan, model, folder
        run = os.environ.get(RUN_DIR_VARIABLE)
        self.run = Path(run) if run and _may_survive(plan) else None
        """The folder of the `serve`; None where workers end with their stub."""
        self.start_seconds = 0.0
        """What the longest start took of those that a dead stub has left, and that fit."""
        self._is_over = False
        """Whether all workers are to end with this stub."""
        self._left: dict[int, tuple[Place, SurvivorRecord]] = {}
        """Those that a dead stub has left, and that fit, by their slots."""
        self._folders: set[str] = set()
        """Private folders of those that this stub has taken over, or has tried to."""

    def place(self, index: int) -> str:
        """Return where a worker comes back to; empty if it stops with its stub."""
        return Place.of(self.run, self.model, index).text if self.run else ""

    def sort_out(self, wanted: Collection[int]) -> None:
        """Keep what a dead stub has left and fits, and kill the rest."""
        files, folders = self.files(), set[str]()
        for place, record in left_behind(self.model):
            folders |= {record.folder, record.pool}
            if problem := self._misfit(place.index, record, files, wanted):
                _log.info("worker %s/%d is not adopted: %s", self.model, place.index, problem)
                end(place, record)
            else:
                self._left[place.index] = place, record
                self.start_seconds = max(self.start_seconds, record.start_seconds)
        for each in folders - {record.folder for _, record in self._left.values()}:
            shutil.rmtree(each, ignore_errors=True)

    def has(self, index: int) -> bool:
        return index in self._left

    def _misfit(
        self, index: int, record: SurvivorRecord, files: Files, wanted: Collection[int]
    ) -> str:
        if not record.worker.lives:
            return "it is gone"
        if not self.run or index not in wanted:
            return "it is not wanted any more"
        if record.key != self._key(index):
            return "an option, its environment or its engine has changed"
        if record.files != files:
            return "the files of the model have changed"
        return ""

    def adopt(
        self,
        slot: Slot,
        on_line: Callable[[str], None],
        is_cancelled: Callable[[], bool],
    ) -> tuple[StartingWorker, Worker] | None:
        """Take over what a dead stub has left of a slot; None if there is nothing, or it fails.

        It is dead then.
        """
        if slot.index not in self._left:
            return None
        place, record = self._left.pop(slot.index)
        self._folders.add(record.folder)
        try:
            launched = self._accept(slot, place, record, on_line, is_cancelled)
            worker = launched.ready()
        except (LmiError, OSError) as error:
            words = str(error).partition(LAST_LINES)[0]
            _log.warning("worker %s is not adopted: %s", slot.name, words)
            end(place, record)
            return None
        _log.info("worker %s is adopted: its stub has died", slot.name)
        return launched, worker

    def _accept(
        self,
        slot: Slot,
        place: Place,
        record: SurvivorRecord,
        on_line: Callable[[str], None],
        is_cancelled: Callable[[], bool],
    ) -> StartingWorker:
        command = worker_command(self.plan, self._context(slot.index), os.environ)
        process = AdoptedProcess(record.worker, record.shared, command, on_line)
        start = start_message(self.plan, slot.name, place.text)
        launched = StartingWorker(self.plan, slot.name, process, start, is_cancelled, _SECONDS)
        launched.folder, launched.files = record.folder, record.files
        with listen(self.plan, place.socket) as (listener, _):
            launched.accept(listener, record.token)
        return launched

    def note(self, slot: Slot, launched: StartingWorker, start_seconds: float) -> None:
        """Write down a worker that is ready."""
        if self.run is None or self._is_over or not launched.may_return:
            return
        place = Place.of(self.run, self.model, slot.index)
        # A model that is nowhere here may change while nobody sees it.
        if not launched.files and self.plan.config.model:
            place.clear()
            return
        record = SurvivorRecord(
            OneProcess.of(launched.pid),
            OneProcess.of(os.getpid()),
            launched.token,
            self._key(slot.index),
            launched.files,
            launched.shared,
            launched.folder,
            str(self.folder),
            start_seconds,
        )
        try:
            place.write(record)
        except OSError as error:
            _log.warning("worker %s would not outlive its stub: %s", slot.name, error)

    def files(self) -> Files:
        return files_of(self.plan.config, {**os.environ, **self.plan.launch.environment})

    def forget(self) -> None:
        """Let none of this stub's workers outlive it: they are to end."""
        self._is_over = True
        own = OneProcess.of(os.getpid())
        for place in places(self.run, self.model) if self.run else ():
            if (record := place.read()) and record.stub == own:
                place.clear()

    def close(self) -> None:
        """Kill what was not taken over, and remove what was taken over with the others."""
        for place, record in self._left.values():
            end(place, record)
        self._left.clear()
        for each in self._folders:
            shutil.rmtree(each, ignore_errors=True)

    def _context(self, index: int) -> LaunchContext:
        """Return where a worker is started, the same for all stubs."""
        return LaunchContext(index, Path(os.sep), "", "")

    def _key(self, index: int) -> str:
        """Return what changes with all that a worker is started with, but the model's files."""
        plan = self.plan
        command = worker_command(plan, self._context(index), os.environ)
        config = replace(plan.config, adapters={})
        package = Path(lmi_backend.__file__).parent
        what = (
            lmi_backend.__version__,
            max(each.stat().st_mtime_ns for each in package.rglob("*.py")),
            command.argv,
            sorted(command.environment.items()),
            plan.engine,
            config,
            plan.parallel,
            _libraries(Path(plan.launch.python)),
        )
        return hashlib.sha256(repr(what).encode("utf-8", "surrogatepass")).hexdigest()


def files_of(config: EngineConfig, environment: Mapping[str, str]) -> Files:
    """Return the files that a model is loaded from, as they are now."""
    settings: dict[str, Any] = {**config.front_end, **config.passthrough, **config.arguments}
    revision = str(settings.get("revision") or "")
    of_tokenizer = str(settings.get("tokenizer_revision") or revision)
    paths: list[Path] = []
    for name, its_revision in (
        (config.model, revision),
        (str(settings.get("tokenizer") or ""), of_tokenizer),
    ):
        if folder := folder_of(name, its_revision, environment):
            with contextlib.suppress(OSError):
                paths += sorted(folder.iterdir())
    paths.append(Path(str(settings.get("chat_template") or "")))
    files: list[tuple[str, int, int]] = []
    for each in paths:
        # A template may be no file.
        with contextlib.suppress(OSError, ValueError):
            if each.is_file():
                stat = each.stat()
                files.append((str(each), stat.st_mtime_ns, stat.st_size))
    return tuple(files)


def left_behind(model: str) -> Iterator[tuple[Place, SurvivorRecord]]:
    """Yield the workers of a model that a dead stub of the same `serve` has left."""
    run = os.environ.get(RUN_DIR_VARIABLE)
    for place in places(Path(run), model) if run else ():
        if (record := place.read()) and not record.stub.lives:
            yield place, record


def memory_left_behind(model: str) -> int:
    return sum(
        _memory_of(pid)
        for _, record in left_behind(model)
        if record.worker.lives
        for pid in members(record.worker.pid)
    )


def end_left_behind(model: str) -> None:
    for place, record in left_behind(model):
        end(place, record)


def end(place: Place, record: SurvivorRecord) -> None:
    """Kill a worker whose stub has died, with all that its engine has started."""
    if not record.worker.is_replaced:
        kill_session(record.worker.pid, set(map(Path, record.shared)))
    place.clear()


def _may_survive(plan: EnginePlan) -> bool:
    """Tell whether a worker is one process of this machine, without code of the user's."""
    is_one = plan.parallel.mode == "python" and plan.parallel.nodes == 1
    is_one = is_one and "nnodes" not in plan.config.arguments
    return is_one and plan.engine != CUSTOM and not plan.config.runs_code


def _libraries(python: Path) -> list[tuple[str, int]]:
    """Return the folders of an interpreter's packages, and when one was installed there last."""
    folders = sorted(python.parent.parent.glob("lib/python3*/*-packages"))
    return [(str(each), each.stat().st_mtime_ns) for each in folders]


def _memory_of(pid: int) -> int:
    """Return what only this process has in memory, which is what its end frees."""
    try:
        text = Path(f"/proc/{pid}/status").read_text("utf-8", "replace")
    except OSError:
        return 0
    sizes = (line.split() for line in text.splitlines() if line.startswith("RssAnon:"))
    return sum(int(size) << 10 for _, size, _ in sizes)
