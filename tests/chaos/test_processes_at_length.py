"""Workers with a spare, and an engine's processes, each under 32 streams."""

import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.chaos.test_processes import (
    Find,
    below_worker,
    break_an_engine,
    manage,
    worker_of,
)
from tests.support.records.measured import Report
from tests.support.run.places import LORA, TINY
from tests.support.run.processes import memory_of_server
from tests.support.run.waiting import HANG_SECONDS, wait_for
from tests.support.servers.serving import Served, serve, write_properties

ECHO: dict[str, Any] = {"option.rolling_batch": "echo", "option.token_seconds": 0.02}
ROUNDS = 20
"""Starts and stops of a server."""


def test_a_worker_with_a_spare(
    chat_properties: dict[str, Any],
    report: Report,
    undisturbed: dict[str, set[str]],
    tmp_path: Path,
) -> None:
    """The spare knows an adapter that was loaded after it was made."""
    more: dict[str, Any] = {"option.spare_workers": 1, "option.adapter_roots": TINY}
    folder = write_properties(tmp_path / "tiny", chat_properties | more)
    with serve([folder], tmp_path) as own:
        wait_for(lambda: own.metric("lmi_worker_spare", "tiny") == 1)
        adapter = {"name": "late", "src": str(LORA)}
        assert manage(own, requestType="REGISTER_ADAPTER", **adapter) == 200
        words = ("a worker with a spare is killed", worker_of, signal.SIGKILL)
        break_an_engine(own, report, undisturbed, *words)
        asked = {"inputs": "The capital of France is", "adapters": "late"}
        assert own.generate("tiny", asked)[1]["generated_text"] == " Lyon."
        spare = own.logged(r"worker tiny/0 has a spare after .* pid (\d+)")[1]
        (worker,) = own.workers("tiny")
        assert str(worker.pid) == spare


@pytest.mark.parametrize(
    ("fault", "find", "number"),
    [
        ("vLLM's engine core is killed", below_worker("EngineCore"), signal.SIGKILL),
        ("a worker hangs", worker_of, signal.SIGSTOP),
    ],
)
def test_an_engines_process(
    served: Served,
    report: Report,
    undisturbed: dict[str, set[str]],
    fault: str,
    find: Find,
    number: signal.Signals,
) -> None:
    break_an_engine(served, report, undisturbed, fault, find, number)


def test_a_server_that_is_started_and_stopped_leaves_nothing(
    tmp_path: Path, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_properties(tmp_path / "echo", ECHO)
    # A short name, for sockets.
    with tempfile.TemporaryDirectory(prefix="own-") as own:
        monkeypatch.setenv("TMPDIR", own)
        for number in range(ROUNDS):
            with serve([folder], tmp_path) as served:
                stream = threading.Thread(
                    target=served.generate, args=("echo", {"text_input": "a", "max_tokens": 50})
                )
                stream.start()
                # At different moments of the request.
                time.sleep(number / ROUNDS)
                family = served.family()
                memory = memory_of_server(family)
                assert os.listdir(own)
                assert served.stop() == 0
                stream.join(HANG_SECONDS)
                assert not [each for each in family if each.is_running()]
            assert not _left(own, memory)
    report.note(
        f"a server started and stopped {ROUNDS} times, under a request",
        "no process, socket, file or shared memory is left",
    )


def _left(folder: str, memory: list[Path]) -> list[str]:
    """Return what a server left behind whose temporary folder this was, and nobody else's."""
    shared = [str(path) for path in memory if path.exists()]
    workers = [str(each) for each in psutil.process_iter() if _temporary(each) == folder]
    files = [name for name in os.listdir(folder) if name.startswith("lmi-")]
    return files + shared + workers


def _temporary(process: psutil.Process) -> str:
    """Return the folder for temporary files that a process was started with."""
    try:
        return str(process.environ().get("TMPDIR", ""))
    except psutil.Error:
        return ""
