"""The front end's life beside a server; tests/chaos has what breaks."""

import json
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lmi_backend.options import load_options
from lmi_backend.repository.writer import write_model
from lmi_backend.supervisor.processes import lives
from tests.support.attackers import ECHO
from tests.support.ports import free_ports, listens
from tests.support.serving import LMI, Served, front_end, serve, tritonserver, write_properties
from tests.support.waiting import HANG_SECONDS, wait_for

BODY = {"inputs": "a b c", "parameters": {"max_new_tokens": 3}}
LONG = {"inputs": "a", "stream": True, "parameters": {"max_new_tokens": 100}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    key = ("--control-key", str(folder / "control.key"))
    with serve([write_properties(folder / "echo", ECHO)], folder, *key) as served:
        wait_for(lambda: served.ask("/ping")[0] == 200)
        yield served


def test_models_are_found_as_they_come_and_go(server: Served) -> None:
    assert server.control("echo/unload")[0] == 200
    wait_for(lambda: server.ask("/v1/models")[2] == b'{"object":"list","data":[]}')
    assert server.ask("/invocations", BODY)[0] == 503
    # Triton's own answer, which depends on its release.
    assert server.ask("/v2/models/echo/ready")[0] in (400, 404)
    assert server.ask("/v2/models/echo/generate", BODY)[0] in (400, 404)
    assert server.control("echo/load")[0] == 200
    wait_for(lambda: server.ask("/invocations", BODY)[0] == 200)
    names = [card["id"] for card in json.loads(server.ask("/v1/models")[2])["data"]]
    assert names[0] == "echo"
    # Clients that name none send a URL or a word; what is another model's name is unknown.
    for path, body in (("/v1/chat/completions", {"messages": []}), ("/generate", {"inputs": "a"})):
        for name, status in (
            ("http://a:8080/v1/", 200),
            ("HTTPS://b", 200),
            ("tgi", 200),
            ("http", 404),
        ):
            assert server.ask(path, body | {"model": name})[0] == status
    _assert_no_connection_is_refused_while_it_is_replaced(server)


def _assert_no_connection_is_refused_while_it_is_replaced(server: Served) -> None:
    for _ in range(2):
        (front_end,) = server.front_ends()
        front_end.kill()
        wait_for(lambda each=front_end: not lives(each))  # type: ignore[misc]
        # Who connects now waits for the next one, which may not know the model yet.
        assert server.ask("/invocations", BODY)[0] in (200, 503)
        wait_for(lambda: server.ask("/ping")[0] == 200)
        assert server.front_ends() != [front_end]


def test_it_serves_the_models_of_a_server_that_others_start(tmp_path: Path) -> None:
    """`lmi-backend frontend` is there first; it finds the models of one server, then the next."""
    repository = tmp_path / "models"
    folder = write_properties(tmp_path / "echo", ECHO)
    write_model(folder, repository, "echo", load_options(folder, {}), force=True)
    # The path of a Unix socket holds 107 bytes.
    with (
        tempfile.TemporaryDirectory(prefix="lmi-test-") as run,
        front_end(tmp_path, f"--run-folder={run}") as front,
    ):
        for turn in ("first", "second"):
            (tmp_path / turn).mkdir()
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("TMPDIR", run)
                with tritonserver(repository, tmp_path / turn):
                    wait_for(lambda: front.ask("/ping")[0] == 200)
                    assert front.ask("/invocations", BODY)[0] == 200
                wait_for(lambda: front.ask("/ping")[0] == 503)


def test_several_that_share_a_port_are_kept_up_and_end_with_who_keeps_them(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    command = [*LMI, "frontend", "--port", str(port), "--run-folder", str(tmp_path)]
    command += ["--frontend-processes", "2"]
    keeper = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        kept = psutil.Process(keeper.pid)
        wait_for(lambda: listens(port) and len(kept.children()) == 2)
        first, second = kept.children()
        first.kill()
        wait_for(lambda: not first.is_running() and len(kept.children()) == 2)
        both = kept.children()
        assert second in both
    finally:
        keeper.kill()
        keeper.wait()
    psutil.wait_procs(both, timeout=HANG_SECONDS)
    assert not [each for each in both if each.is_running()]
    assert not listens(port)


def test_metrics_are_tritons_and_ours_and_one_series_of_each_that_fleets_read(
    server: Served,
) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=HANG_SECONDS) as stream:
        data = json.dumps(LONG).encode()
        head = (
            f"POST /invocations HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}\r\n\r\n"
        )
        stream.sendall(head.encode() + data)
        assert stream.recv(100)
        running = 'vllm:num_requests_running{model_name="echo"}'
        wait_for(lambda: f"{running} 1\n" in metrics(server))
        # Beside Triton's, which has one of each worker once its stub has published them.
        wait_for(lambda: "vllm:gpu_cache_usage_perc{" in metrics(server))
        text = metrics(server)
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert text.count(f"\nvllm:{name}") == text.count(f"# TYPE vllm:{name} gauge") == 1
    # The stub publishes once a second.
    wait_for(lambda: 'lmi_requests_open{model="echo"' in metrics(server))
    assert "nv_inference_request_success" in metrics(server)


def metrics(server: Served) -> str:
    status, headers, data = server.ask("/metrics")
    assert (status, headers["content-type"].partition(";")[0]) == (200, "text/plain")
    return data.decode()
