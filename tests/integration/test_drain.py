"""`lmi-backend drain`: what runs may end, nothing more is taken, and nobody waits for ever."""

import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.answers.streams import Streams
from tests.support.run.waiting import HANG_SECONDS, wait_for
from tests.support.servers.serving import (
    LMI,
    Served,
    front_end,
    lmi,
    serve,
    tritonserver,
    write_properties,
)

ECHO: dict[str, Any] = {"option.rolling_batch": "echo", "option.token_seconds": 0.05}


def _drain(served: Served, seconds: float) -> subprocess.Popen[str]:
    command = [*LMI, "drain", f"http://{served.http}", "--timeout", str(seconds)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def _drained(served: Served, model: str) -> str:
    """Drain a server with a short and a long stream; return what the command says."""
    streams = Streams()
    short, long = (streams.generate(served, model, "a b", tokens) for tokens in (40, 4000))
    wait_for(lambda: served.metric("lmi_requests_open", model) == 2)
    draining = _drain(served, 4)
    wait_for(lambda: served.generate(model, {"inputs": "a"})[0] != 200)
    # To be tried elsewhere, and no 404, as long as requests run.
    while not short.endings:
        status, answer = served.generate(model, {"inputs": "a"})
        assert (status, answer["error"]) == (400, "UNAVAILABLE: the server is stopping")
        time.sleep(0.05)
    _, output = draining.communicate(timeout=HANG_SECONDS)
    assert draining.returncode == 0, output
    streams.wait()
    assert (short.endings, short.text) == (["whole"], "a b" * 20)
    assert "the server is stopping" in long.error
    assert "1 requests took too long and got an error" in output
    return output


def test_a_server_that_others_start_has_a_front_end_and_refuses_requests_if_drained(
    tmp_path: Path,
) -> None:
    """`lmi-backend frontend` is there first; it finds the models of one server, then the next.

    The first one may not unload its model.
    """
    repository, folder = tmp_path / "models", write_properties(tmp_path / "echo", ECHO)
    assert lmi("convert", folder, "--repository", repository).returncode == 0
    body = {"inputs": "a b c", "parameters": {"max_new_tokens": 3}}
    # The path of a Unix socket holds 107 bytes.
    with (
        tempfile.TemporaryDirectory(prefix="lmi-test-") as run,
        front_end(tmp_path, f"--run-folder={run}") as front,
    ):
        for turn in ("first", "second"):
            (tmp_path / turn).mkdir()
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("TMPDIR", run)
                with tritonserver(repository, tmp_path / turn) as served:
                    wait_for(lambda: front.ask("/ping")[0] == 200)
                    assert front.ask("/invocations", body)[0] == 200
                    if turn == "first":
                        output = _drained(served, "echo")
                        assert "models stay ready, but refuse requests" in output
                        status, answer = served.generate("echo", {"inputs": "a"})
                        assert (status, answer["error"]) == (
                            400,
                            "UNAVAILABLE: the server is stopping",
                        )
                wait_for(lambda: front.ask("/ping")[0] == 503)


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
        streams = Streams()
        for _ in range(8):
            streams.generate(served, "echo", "a b", 100)
        wait_for(lambda: served.metric("lmi_requests_open", "echo") == 8)
        output = _renewed(served, "--worker", "all", "--model", "echo")
        assert "worker 0 is new after" in output
        assert "worker 1 is new after" in output
        assert "error" not in output
        assert {each.text for each in streams.wait().all} == {"a b" * 50}
        after = {process.pid for process in served.workers("echo")}
        assert len(after) == 2
        assert not before & after
        assert "has 2 models; accepted: --model" in _renewed(served, "--worker", "0")
        asked = ("--model", "other", "--worker", "7")
        assert "there is no worker 7; accepted: 0" in _renewed(served, *asked)
        # The port of the front end leads to the same server.
        done = lmi("health", f"http://127.0.0.1:{served.port}")
        assert {f"{name}: ready" for name in ("echo", "other")} <= set(done.stdout.splitlines())
        output = _drained(served, "other")
        assert "stay ready" not in output
        assert not any(map(served.is_ready, ("echo", "other", "other_trtllm")))


def _renewed(served: Served, *options: str) -> str:
    return lmi("drain", f"http://{served.http}", *options).stderr
