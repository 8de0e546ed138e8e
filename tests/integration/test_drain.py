"""`lmi-backend drain`: what runs may end, nothing more is taken, and nobody waits for ever."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_ports
from tests.support.serving import Served, serve, tritonserver, write_properties
from tests.support.waiting import HANG_SECONDS, wait_for

ECHO: dict[str, Any] = {"option.rolling_batch": "echo", "option.token_seconds": 0.05}


def _drain(served: Served, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "lmi_backend.cli.main", "drain", f"http://{served.http}"]
    return subprocess.Popen(
        [*command, "--timeout", str(seconds)], stderr=subprocess.PIPE, text=True
    )


def _stream(served: Served, model: str, tokens: int) -> tuple[threading.Thread, list[Any]]:
    events: list[Any] = []
    body = {"inputs": "a b", "parameters": {"max_new_tokens": tokens}, "stream": True}

    def collect() -> None:
        with served.events(model, body) as stream:
            events.extend(stream)

    thread = threading.Thread(target=collect)
    thread.start()
    return thread, events


def _drained(served: Served, model: str) -> str:
    """Drain a server with a short and a long stream; return what the command says."""
    short, long = _stream(served, model, 40), _stream(served, model, 4000)
    wait_for(lambda: served.metric("lmi_requests_open", model) == 2)
    draining = _drain(served, 4)
    wait_for(lambda: served.generate(model, {"inputs": "a"})[0] != 200)
    # To be tried elsewhere, and no 404, as long as requests run.
    while short[0].is_alive():
        status, answer = served.generate(model, {"inputs": "a"})
        assert (status, answer["error"]) == (400, "the server is stopping")
        time.sleep(0.05)
    _, output = draining.communicate(timeout=HANG_SECONDS)
    assert draining.returncode == 0, output
    for thread, _ in (short, long):
        thread.join(HANG_SECONDS)
        assert not thread.is_alive()
    assert short[1][-1]["generated_text"] == "a b" * 20
    assert "the server is stopping" in long[1][-1]["error"]
    assert "1 requests took too long and got an error" in output
    return output


def test_a_server_that_may_not_unload_refuses_requests(
    tmp_path: Path, convert: Callable[[Path, Path], None]
) -> None:
    repository = tmp_path / "models"
    convert(write_properties(tmp_path / "echo", ECHO), repository)
    with tritonserver(repository, tmp_path) as served:
        output = _drained(served, "echo")
        assert "models stay ready, but refuse requests" in output
        status, answer = served.generate("echo", {"inputs": "a"})
        assert (status, answer["error"]) == (400, "the server is stopping")


def test_workers_are_new_one_after_the_other_and_a_drained_server_is_not_ready(
    tmp_path: Path,
) -> None:
    two = {"minWorkers": 2, "maxWorkers": 2, "option.parallel_loading": "true"}
    folders = [
        write_properties(tmp_path / "echo", ECHO | two),
        write_properties(tmp_path / "other", ECHO),
    ]
    with serve(folders, tmp_path, "--clients", "trtllm") as served:
        before = {process.pid for process in served.workers("echo")}
        streams = [_stream(served, "echo", 100) for _ in range(8)]
        wait_for(lambda: served.metric("lmi_requests_open", "echo") == 8)
        output = _renewed(served, "--worker", "all", "--model", "echo")
        assert "worker 0 is new after" in output
        assert "worker 1 is new after" in output
        assert "error" not in output
        for thread, events in streams:
            thread.join(HANG_SECONDS)
            assert events[-1]["generated_text"] == "a b" * 50
        after = {process.pid for process in served.workers("echo")}
        assert len(after) == 2
        assert not before & after
        assert "has 2 models; accepted: --model" in _renewed(served, "--worker", "0")
        asked = ("--model", "other", "--worker", "7")
        assert "there is no worker 7; accepted: 0 to 0" in _renewed(served, *asked)
        # The port of the front end leads to the same server.
        served_there = [sys.executable, "-m", "lmi_backend.cli.main", "health"]
        url = f"http://127.0.0.1:{served.port}"
        done = subprocess.run([*served_there, url], capture_output=True, text=True, check=False)
        assert {f"{name}: ready" for name in ("echo", "other")} <= set(done.stdout.splitlines())
        output = _drained(served, "other")
        assert "stay ready" not in output
        assert not any(map(served.is_ready, ("echo", "other", "other_trtllm")))


def _renewed(served: Served, *options: str) -> str:
    command = [sys.executable, "-m", "lmi_backend.cli.main", "drain", f"http://{served.http}"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    return done.stderr


@pytest.fixture
def convert() -> Callable[[Path, Path], None]:
    def run(folder: Path, repository: Path) -> None:
        command = [sys.executable, "-m", "lmi_backend.cli.main", "convert", str(folder)]
        subprocess.run([*command, "--repository", str(repository)], check=True)

    return run


@pytest.mark.parametrize(
    ("host", "problem"),
    [
        ("127.0.0.1", "nothing listens there"),
        ("192.0.2.1", "no process of this user listens there"),
        ("no-such-host.invalid", "no process of this user listens there"),
    ],
)
def test_where_no_server_is_the_command_says_so(host: str, problem: str) -> None:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "lmi_backend.cli.main", "drain", f"http://{host}:{port}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert problem in done.stderr
