"""Loading, unloading, stopping, dying: every request gets an ending and nothing is left behind."""

import contextlib
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from lmi_backend.supervisor.installation import (
    find_server,
    installed_version,
    starts_stubs_by_shell,
)
from lmi_backend.supervisor.processes import lives
from tests.support.answers.streams import Streams
from tests.support.run.ports import free_ports
from tests.support.run.processes import memory_of_server
from tests.support.run.waiting import HANG_SECONDS, nothing_more, wait_for
from tests.support.servers.serving import LMI, Served, serve, write_properties

ECHO: dict[str, Any] = {"option.rolling_batch": "echo", "option.token_seconds": 0.05}


def _begun(served: Served, tokens: int) -> Streams:
    """Return a stream that has its first chunk."""
    streams = Streams()
    streams.generate(served, "echo", "Tell a story:", tokens)
    wait_for(lambda: all(each.chunks for each in streams.all))
    return streams


def test_sigterm_lets_streams_finish_that_do_so_in_time_and_leaves_nothing(tmp_path: Path) -> None:
    folder = write_properties(tmp_path / "echo", ECHO)
    with serve([folder], tmp_path, "--drain-timeout", "8") as served:
        family, run = served.family(), served.run_folder()
        memory = memory_of_server(family)
        short, long = _begun(served, 45), _begun(served, 4000)
        assert served.stop() == 0
        (stream,) = short.wait().all
        assert (stream.endings, stream.text) == (["whole"], "Tell a story:" * 15)
        assert stream.chunks > 20
        assert "stopping" in long.wait().all[0].error
        # None is started again in place of one that was stopped.
        assert served.log().count("worker echo/0 starts") == 1
    _assert_nothing_left(family, memory)
    assert not run.exists()


def test_stopping_during_the_start_leaves_nothing(tmp_path: Path) -> None:
    """The other signals do the same: tests/unit/supervisor/test_stop.py."""
    folder = write_properties(tmp_path / "echo", ECHO | {"option.start_seconds": 600})
    command = [*LMI, "serve", "-v", str(folder)]
    port, http, grpc, metrics = map(str, free_ports(4))
    command += ["--port", port, "--http-port", http, "--grpc-port", grpc, "--metrics-port", metrics]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "worker echo/0 starts" in line:
                break
        serve_process = psutil.Process(process.pid)
        # The guard, the server, the stub and its guard, the worker and the front end.
        wait_for(lambda: len(serve_process.children(recursive=True)) == 6)
        family = serve_process.children(recursive=True)
        memory = memory_of_server(family)
        process.send_signal(signal.SIGINT)
        process.stderr.read()
        assert process.wait(HANG_SECONDS) == 0
    _assert_nothing_left(family, memory)


def _assert_nothing_left(family: list[psutil.Process], memory: list[Path]) -> None:
    assert len(family) >= 3
    assert not list(filter(lives, family))
    assert not [path for path in memory if path.exists()]


def test_a_stub_that_gets_no_processor_while_it_starts_costs_another_start(tmp_path: Path) -> None:
    """24.10 takes a stub for dead after a second, and frees what it is still to read.

    Releases from 25.08 on wait longer (python_backend#408), and need no other start.
    """
    folder = write_properties(tmp_path / "echo", ECHO)
    before = set(_stubs_of("echo_infer"))

    def stop_stub() -> None:
        (stub,) = wait_for(lambda: {*_stubs_of("echo_infer")} - before)
        # Its second thread tells the server that it lives; the model is imported from then on.
        wait_for(lambda: stub.num_threads() > 1)
        wait_for(lambda: any("numpy" in each.path for each in stub.memory_maps()))
        stub.suspend()
        nothing_more(3, "a server from 25.08 on does not take the stub for dead")
        with contextlib.suppress(psutil.NoSuchProcess):
            stub.resume()

    stopping = threading.Thread(target=stop_stub)
    stopping.start()
    with serve([folder], tmp_path, "--clients", "infer") as served:
        stopping.join()
        again = "killed by SIGABRT; its log says why: the server is started again"
        assert (again in served.greeting) == (served.release < "25.08")
        body = {"inputs": "a b", "parameters": {"max_new_tokens": 3}}
        assert served.generate("echo", body)[1]["generated_text"] == "a ba"


def _stubs_of(model: str) -> list[psutil.Process]:
    """Return the stubs of a model that run for this process."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            argv = process.cmdline()
            is_stub = argv[0].endswith("triton_python_backend_stub") if argv else False
            if is_stub and f"/{model}/1/" in "".join(argv):
                found.append(process)
    return found


def test_a_path_with_characters_of_a_shell_is_served_where_triton_starts_none(
    tmp_path: Path,
) -> None:
    folder = write_properties(tmp_path / "echo", ECHO)
    binary = find_server(tmp_path / "server").binary
    options = ("--model-repository", str(tmp_path / "it's $my mödels"))
    if starts_stubs_by_shell(installed_version(binary)):
        with (
            pytest.raises(AssertionError, match="through a shell"),
            serve([folder], tmp_path, *options),
        ):
            pass
        return
    with serve([folder], tmp_path, *options) as served:
        assert served.generate("echo", {"inputs": "a"})[0] == 200
