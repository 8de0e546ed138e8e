"""What a run of the tests leaves behind: processes, and files in the tree and in shared folders."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.run.places import ROOT
from tests.support.run.ports import RUN, of_all_runs
from tests.support.run.waiting import wait_for

SHARED = (
    ("/tmp", "python_env_*"),
    ("/dev/shm", "lmi_*"), ("/dev/shm", "psm_*"), ("/dev/shm", "sem.*"), ("/dev/shm", "triton_*"),
)  # fmt: skip
"""What Triton's Python backend, Python and vLLM make, whatever TMPDIR says."""
OF_KILLED = ("python_env_", "triton_")
MADE_BY_TOOLS = {"__pycache__", "build", "dist", "node_modules"}


class LeftBehind:
    """A plugin of pytest, in the process that reports: what is left fails the run.

    The run has a temporary folder of its own, which goes with it: for killed programs leave files.
    The folder of a `serve` must be gone even so.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="lmi-tests-"))
        self._runs = of_all_runs().open("a")
        fcntl.flock(self._runs, fcntl.LOCK_SH)
        self._pytest = self._folder / "pytest"
        config.option.basetemp = config.option.basetemp or str(self._pytest)
        os.environ[RUN] = os.environ["TMPDIR"] = str(self._folder)
        tempfile.tempdir = None
        self._earlier = {*_shared(), *_tree()}
        self._left: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Look for what is left; remove the temporary folder of a run that passed."""
        self._left += _processes_left(str(self._folder))
        left = {*_tree()} - self._earlier | {*self._folder.glob("lmi-serve-*")}
        if self._is_alone():
            new = {*_shared()} - self._earlier
            left |= {path for path in new if not _is_of_killed_program(path)}
        self._left += sorted(map(str, left))
        if self._left:
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
        elif session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            shutil.rmtree(self._folder, ignore_errors=True)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._left:
            terminalreporter.section("left behind", red=True)
            terminalreporter.line("\n".join(self._left))
        if self._folder.is_dir():
            terminalreporter.line(f"temporary files of this run: {self._folder}")

    def _is_alone(self) -> bool:
        """Tell whether nobody else's server runs, whose files have such names too."""
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(self._runs, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return all(
                each.info["name"] != "tritonserver" for each in psutil.process_iter(["name"])
            )
        return False


def _shared() -> Iterator[Path]:
    for folder, pattern in SHARED:
        yield from Path(folder).glob(pattern)


def _is_of_killed_program(path: Path) -> bool:
    """Remove what Triton removes when it ends, unless a test has killed it."""
    if path.name.startswith(OF_KILLED):
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() else path.unlink()
    return not path.exists()


def _tree() -> Iterator[Path]:
    """Yield files and folders of the tree, without what tools write for themselves."""
    for place, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name[0] != "." and name not in MADE_BY_TOOLS]
        yield from (Path(place, name) for name in (*folders, *files))


def _processes_left(folder: str) -> list[str]:
    """Return the processes of the run that do not end by themselves."""
    left: list[psutil.Process] = []

    def are_gone() -> bool:
        left[:] = [each for each in psutil.process_iter() if _is_of_run(each, folder)]
        return not left

    try:
        wait_for(are_gone, 20)
    except AssertionError:
        return [f"process {each.pid}: {' '.join(each.cmdline())[:200]}" for each in left]
    return []


def _is_of_run(process: psutil.Process, folder: str) -> bool:
    try:
        if process.pid == os.getpid() or process.environ().get(RUN) != folder:
            return False
        # Python's own child, which ends with this process.
        return "resource_tracker" not in " ".join(process.cmdline())
    except psutil.Error:
        return False
