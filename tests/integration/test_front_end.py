"""The front end's life beside a server: models come and go, kills, drain, another's server."""

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lmi_backend.options import load_options
from lmi_backend.repository.writer import write_model
from tests.support.attackers import ECHO
from tests.support.serving import Served, free_ports, serve, tritonserver, write_properties
from tests.support.waiting import wait_for

BODY = {"inputs": "a b c", "parameters": {"max_new_tokens": 3}}
LONG = {"inputs": "a", "stream": True, "parameters": {"max_new_tokens": 100}}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    key = ("--control-key", str(tmp_path / "control.key"))
    with serve([write_properties(tmp_path / "echo", ECHO)], tmp_path, *key) as served:
        wait_for(lambda: served.ask("/ping")[0] == 200)
        yield served


def front_ends(server: Served) -> list[psutil.Process]:
    found = []
    for each in server.family():
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [each] if "frontend" in each.cmdline() else []
    return found


def test_a_killed_front_end_is_started_again(server: Served) -> None:
    (front_end,) = front_ends(server)
    triton = [each.pid for each in server.family() if each.name() == "tritonserver"]
    front_end.kill()
    wait_for(lambda: front_ends(server) and front_ends(server)[0].pid != front_end.pid)
    wait_for(lambda: listens(server.port) and server.ask("/invocations", BODY)[0] == 200)
    assert triton == [each.pid for each in server.family() if each.name() == "tritonserver"]


def test_a_killed_server_is_503_until_it_is_back(server: Served) -> None:
    (front_end,) = front_ends(server)
    (triton,) = (each for each in server.family() if each.name() == "tritonserver")
    triton.kill()
    wait_for(lambda: server.ask("/ping")[0] == 503)
    status, said, _ = server.ask("/v1/completions", {"model": "echo", "prompt": "a"})
    assert (status, said["retry-after"]) == (503, "1")
    wait_for(lambda: server.ask("/ping")[0] == 200)
    assert server.ask("/invocations", BODY)[0] == 200
    assert [each.pid for each in front_ends(server)] == [front_end.pid]


def test_models_are_found_as_they_come_and_go(server: Served) -> None:
    assert server.control("echo/unload")[0] == 200
    wait_for(lambda: server.ask("/v1/models")[2] == b'{"object":"list","data":[]}')
    assert server.ask("/invocations", BODY)[0] == 503
    assert server.control("echo/load")[0] == 200
    wait_for(lambda: server.ask("/invocations", BODY)[0] == 200)
    names = [card["id"] for card in json.loads(server.ask("/v1/models")[2])["data"]]
    assert names[0] == "echo"


def test_a_drain_lets_a_stream_end_and_leaves_nothing(server: Served) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as stream:
        data = json.dumps(LONG).encode()
        head = f"POST /invocations HTTP/1.1\r\nhost: a\r\ncontent-length: {len(data)}\r\n\r\n"
        stream.sendall(head.encode() + data)
        answer = stream.recv(65536)
        family = server.family()
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: server.ask("/invocations", BODY)[0] == 503)
        while not answer.endswith(b"0\r\n\r\n"):
            part = stream.recv(65536)
            assert part, answer
            answer += part
    assert answer.count(b'"token"') == 100
    assert server.stop() == 0
    assert not [each for each in family if each.is_running() and each.status() != "zombie"]


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_nothing_of_it_is_left_whatever_ends_serve(server: Served, sent: int) -> None:
    family = server.family()
    server.process.send_signal(sent)
    server.process.wait(60)
    wait_for(lambda: not [p for p in family if p.is_running() and p.status() != "zombie"])


def test_it_serves_the_models_of_a_server_that_others_start(tmp_path: Path) -> None:
    """`lmi-backend frontend` is there first; it finds the models of one server, then the next."""
    repository = tmp_path / "models"
    folder = write_properties(tmp_path / "echo", ECHO)
    write_model(folder, repository, "echo", load_options(folder, {}), force=True)
    (port,) = free_ports(1)
    # The path of a Unix socket holds 107 bytes.
    run = Path(tempfile.mkdtemp(prefix="lmi-test-"))
    command = [sys.executable, "-m", "lmi_backend.cli.main", "frontend", "--port", str(port)]
    front_end = subprocess.Popen([*command, "--run-folder", str(run)], stderr=subprocess.DEVNULL)
    try:
        for turn in ("first", "second"):
            (tmp_path / turn).mkdir()
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("TMPDIR", str(run))
                with tritonserver(repository, tmp_path / turn) as triton:
                    triton.port = port
                    wait_for(lambda: listens(port) and triton.ask("/ping")[0] == 200)
                    assert triton.ask("/invocations", BODY)[0] == 200
                wait_for(lambda: triton.ask("/ping")[0] == 503)
    finally:
        front_end.terminate()
        assert front_end.wait(30) == 0
        shutil.rmtree(run)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_metrics_are_tritons_and_ours_and_one_series_of_each_that_fleets_read(
    server: Served,
) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as stream:
        data = json.dumps(LONG).encode()
        head = f"POST /invocations HTTP/1.1\r\nhost: a\r\ncontent-length: {len(data)}\r\n\r\n"
        stream.sendall(head.encode() + data)
        assert stream.recv(100)
        wait_for(lambda: "vllm:num_requests_running 1\n" in metrics(server))
        text = metrics(server)
    for name in ("running", "waiting"):
        assert text.count(f"\nvllm:num_requests_{name} ") == 1
    assert text.count("\nvllm:kv_cache_usage_perc ") == 1
    # The stub publishes once a second.
    wait_for(lambda: 'lmi_requests_open{model="echo"' in metrics(server))
    assert "nv_inference_request_success" in metrics(server)


def metrics(server: Served) -> str:
    status, said, data = server.ask("/metrics")
    assert (status, said["content-type"].partition(";")[0]) == (200, "text/plain")
    return data.decode()
