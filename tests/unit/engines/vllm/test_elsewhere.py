"""What vLLM's own processes let go reaches the worker, and never harms them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lmi_backend.engines.vllm import fast_paths
from lmi_backend.engines.vllm.fast_paths import COSTS
from lmi_backend.ipc.environment import GROUP_VARIABLE

CORE = """
from lmi_backend.engines.vllm import fast_paths
fast_paths.probe("waits", "a function", lambda: int("x"))
fast_paths.turn_off("waits", "a function", "another thing")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The private folder of a worker in which nothing is off."""
    monkeypatch.setattr(fast_paths, "_off", {})
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("LMI_BACKEND_LET_GO", "")
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv(GROUP_VARIABLE, raising=False)
    return tmp_path


def test_what_a_process_of_the_engine_lets_go_is_in_the_report_of_the_worker() -> None:
    fast_paths.share()
    assert fast_paths.is_on("waits")
    subprocess.run([sys.executable, "-c", CORE], check=True)
    ((name, reason, cost),) = [each for each in fast_paths.report() if each[1]]
    assert (name, cost) == ("waits", COSTS["waits"])
    assert reason.startswith("expected a function; ValueError: invalid literal")
    assert "(in process " in reason
    assert not fast_paths.is_on("waits")


def test_a_worker_that_starts_again_forgets_what_the_last_one_was_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(GROUP_VARIABLE, "lmi-x-0")
    fast_paths.share()
    fast_paths.tell("load", "of the last one")
    # The ranks after the first come when they come.
    monkeypatch.setenv("RANK", "1")
    fast_paths.share()
    assert "of the last one" in fast_paths.reason_of("load")
    monkeypatch.setenv("RANK", "0")
    fast_paths.share()
    monkeypatch.setattr(fast_paths, "_off", {})
    assert not fast_paths.reason_of("load")


@pytest.mark.parametrize("line", ["", "\n", "load", "load\n", "none x\n", " \xff\n"])
def test_what_is_no_line_of_a_hold_lets_nothing_go(line: str) -> None:
    fast_paths.share()
    Path(os.environ["LMI_BACKEND_LET_GO"]).write_text(line, encoding="utf-8")
    assert not any(reason for _, reason, _ in fast_paths.report())


def test_a_process_that_cannot_tell_lets_go_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (str(folder), str(folder / "gone" / "file"), ""):
        monkeypatch.setattr(fast_paths, "_off", {})
        monkeypatch.setenv("LMI_BACKEND_LET_GO", path)
        fast_paths.turn_off("load", "a count", "none")
        assert fast_paths.reason_of("load") == "expected a count; none"


def test_without_a_folder_of_its_own_a_worker_names_no_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TMPDIR")
    fast_paths.share()
    assert os.environ["LMI_BACKEND_LET_GO"] == ""
