"""A server that clients, or anybody, break again and again: it never gives up, nor in silence."""

import contextlib
import http.client
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tritonclient import grpc

from lmi_backend.supervisor.processes import GUARD, lives
from lmi_backend.supervisor.shared_names import remove_abandoned
from tests.support.answers.triton_bodies import inference
from tests.support.answers.triton_client import strings, tensors
from tests.support.harm.attackers import ECHO
from tests.support.run.ports import listens
from tests.support.run.processes import memory_of_server
from tests.support.run.waiting import HANG_SECONDS, wait_for
from tests.support.servers.serving import Served, lmi, serve, write_properties


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that is broken again and again, until its last test ends it."""
    folder = tmp_path_factory.mktemp("broken")
    model = write_properties(folder / "echo", ECHO)
    with serve([model], folder, "--clients", "infer") as served:
        yield served


@pytest.fixture
def echo(tmp_path: Path) -> Iterator[Served]:
    with serve([write_properties(tmp_path / "echo", ECHO)], tmp_path) as served:
        yield served


def _serves(served: Served) -> bool:
    try:
        return served.generate("echo", {"inputs": "a"})[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def _server(served: Served) -> psutil.Process | None:
    return next(iter(served.named("tritonserver")), None)


def _crash(served: Served) -> None:
    """Send what ends Triton 24.10: 200 kB of opening brackets (CVE-2025-23310)."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        served.post("/v2/models/echo/generate", b"[" * 200_000)


def _classify(served: Served) -> None:
    """Ask Triton 24.10 for an output as classes, which also ends it."""
    output = {"name": "text_output", "parameters": {"classification": 1}}
    with contextlib.suppress(OSError, http.client.HTTPException):
        served.post("/v2/models/echo_infer/infer", inference(outputs=[output]))


def _classify_over_grpc(served: Served) -> None:
    """Do the same with the model itself."""
    text = tensors(grpc, {"text_input": strings("a")})
    output = grpc.InferRequestedOutput("text_output", class_count=1)
    ended = threading.Event()
    with grpc.InferenceServerClient(served.grpc) as client:
        client.start_stream(lambda result, error: ended.set())
        client.async_stream_infer("echo", text, outputs=[output])
        ended.wait(HANG_SECONDS)


@pytest.mark.parametrize("name", ["tritonserver", "triton_python_backend_stub"])
def test_a_death_while_it_is_started_again_does_not_end_serve(broken: Served, name: str) -> None:
    killed: list[psutil.Process] = []

    def kill() -> bool:
        """Kill the one that is there, if there is one, and if it does not end by itself."""
        for each in broken.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                if name in each.name() and each not in killed:
                    each.kill()
                    killed.append(each)
                    return True
        return False

    # The second is killed as soon as it is there, long before it serves.
    for _ in range(2):
        wait_for(kill)
        wait_for(lambda: not killed[-1].is_running())
    wait_for(lambda: _serves(broken))
    assert broken.process.poll() is None


def test_a_post_that_ends_the_server_each_time_does_not_end_serve(broken: Served) -> None:
    before = _server(broken)
    assert before is not None
    # Later releases refuse what ends this one.
    is_later = broken.release > "24.10"
    for crash in (_crash, _classify, _classify_over_grpc):
        crash(broken)
        wait_for(lambda gone=before: is_later or not gone.is_running())
        wait_for(lambda: _serves(broken))
        before = _server(broken)
        assert before is not None
    assert broken.process.poll() is None


def test_with_its_log_and_its_folder_gone_it_starts_again(broken: Served) -> None:
    """Whoever read the log has ended, and a cleaner was in the folder for temporary files.

    The last test of this server.
    """
    run, before = broken.run_folder(), _server(broken)
    assert broken.process.stdout is not None
    broken.process.stdout.close()

    def is_removed() -> bool:
        # A process of the server may make a file in it meanwhile.
        shutil.rmtree(run, ignore_errors=True)
        return not run.exists()

    wait_for(is_removed)
    assert before is not None
    before.kill()
    wait_for(lambda: _server(broken) not in (None, before))
    wait_for(lambda: _serves(broken))
    assert broken.run_folder() == run
    # A worker outlives its server, waits for the next stub, and does not outlive `serve`.
    (worker,), last = broken.workers("echo"), _server(broken)
    assert last is not None
    last.kill()
    broken.stop()
    assert not lives(worker)
    assert not run.exists()


def test_a_reader_of_its_log_that_hangs_stops_nothing(tmp_path: Path) -> None:
    """Nobody reads the pipe of 64 KiB any more into which all processes log.

    Then its terminal ends, which leaves nothing; with a log file a hangup is about that. The other
    signals do the same: tests/unit/supervisor/test_stop.py.
    """
    logging_each = {"option.token_seconds": 0, "option.log_requests": "true"}
    model = write_properties(tmp_path / "echo", ECHO | logging_each)
    body = {"inputs": "a", "parameters": {"max_new_tokens": 1}}
    with serve([model], tmp_path, has_log_file=False) as served:
        for _ in range(300):
            assert served.generate("echo", body)[0] == 200
            assert served.ask("/invocations", body)[0] == 200
        before = _server(served)
        assert before is not None
        before.kill()
        wait_for(lambda: _server(served) not in (None, before))
        wait_for(lambda: _serves(served))
        read = threading.Thread(target=lambda: lines.append(served.process.stdout.read()))
        lines: list[str] = []
        read.start()
        traces = _Traces(served)
        served.process.send_signal(signal.SIGHUP)
        assert served.process.wait(HANG_SECONDS) == 0
        traces.assert_gone()
        read.join()
    assert len(lines[0]) >= 100_000
    # Nothing was dropped: there is room for so many lines.
    assert lines[0].count("request model=echo") >= 600


def test_a_server_that_does_not_come_up_at_first_is_the_users_to_mend(tmp_path: Path) -> None:
    folder = write_properties(tmp_path / "echo", ECHO | {"option.fail_start": "true"})
    with pytest.raises(AssertionError) as refusal, serve([folder], tmp_path):
        pass
    # Nothing is said after the model, the cause and the advice.
    _, _, last = str(refusal.value).partition("lmi-backend: model echo does not start\n")
    assert re.match(r"  cause:  .*option.fail_start=true.*\n  advice: .*\n", last)


def test_killed_it_takes_everything_along(echo: Served) -> None:
    traces = _Traces(echo)
    echo.process.kill()
    echo.process.wait()
    wait_for(lambda: not any(each.is_running() for each in traces.family))
    wait_for(lambda: not traces.run.exists())
    traces.assert_gone()


def test_killed_with_its_guard_it_leaves_no_process_and_no_port(echo: Served) -> None:
    """The next `serve` removes its memory, and who cleans temporary folders its files."""
    traces = _Traces(echo)
    (guard,) = (
        each for each in psutil.Process(echo.process.pid).children() if each.name() == GUARD
    )
    # So it sees nothing of the other's death.
    guard.suspend()
    guard.kill()
    echo.process.kill()
    echo.process.wait()
    wait_for(lambda: not any(map(lives, traces.family)))
    assert not any(map(listens, (echo.port, echo.http_port, echo.grpc_port, echo.metrics_port)))
    shutil.rmtree(traces.run)
    remove_abandoned()
    traces.assert_gone()


class _Traces:
    """What a running server has of processes, files and memory."""

    def __init__(self, served: Served) -> None:
        self.family, self.run = served.family(), served.run_folder()
        self._memory = memory_of_server(self.family)
        assert len(self.family) >= 3
        assert self.run.is_dir()

    def assert_gone(self) -> None:
        assert not [each for each in self.family if lives(each)]
        assert not self.run.exists()
        assert not [path for path in self._memory if path.exists()]


def _health(served: Served, *options: str) -> subprocess.CompletedProcess[str]:
    return lmi("health", f"http://{served.http}", *options)


def test_a_model_without_workers_is_unready_and_loaded_again(tmp_path: Path) -> None:
    folder = write_properties(tmp_path / "echo", ECHO | {"retry_threshold": 0})
    with serve([folder], tmp_path) as served:
        assert _health(served).stdout == "echo: ready\n"
        seen = []

        def is_seen_unready() -> bool:
            # Again, since one reload may be over before `health` has started; pauses grow.
            for worker in served.workers("echo"):
                with contextlib.suppress(psutil.NoSuchProcess):
                    worker.kill()
            seen.append(_health(served))
            return seen[-1].returncode != 0

        wait_for(is_seen_unready)
        assert re.search("echo: (.*not restarted|Triton calls it)|is not loaded", seen[-1].stdout)
        wait_for(lambda: _serves(served))
        assert _health(served, "--live").stdout == "echo: ready\n"
        served.stop()
        assert served.process.stdout is not None
        output = served.process.stdout.read()
    assert "is not restarted (retry_threshold); it is loaded again, in 0 s at first" in output
    assert "echo: ready again" in output


def test_or_serve_exits_if_it_is_told_to(tmp_path: Path) -> None:
    folder = write_properties(tmp_path / "echo", ECHO | {"retry_threshold": 0})
    with serve([folder], tmp_path, "--on-failure", "exit") as served:
        (worker,) = served.workers("echo")
        worker.kill()
        assert served.process.wait(HANG_SECONDS) == 1
        assert served.process.stdout is not None
        assert "is not restarted (retry_threshold)" in served.process.stdout.read()
