"""`lmi-backend restart --front-end`: no connection is refused, and no stream is cut."""

import contextlib
import http.client
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from lmi_backend.frontend.http.api_keys import hash_of
from tests.chaos.test_front_end import CHATS, ECHO
from tests.chaos.test_front_end_death import BODIES, _lasting
from tests.support.chaos_report import Report
from tests.support.cutting_proxy import follow
from tests.support.serving import Served, serve, write_properties
from tests.support.waiting import HANG_SECONDS, wait_for

STREAMS = 16
SHORT = json.dumps(
    {"model": "echo", "messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
).encode()
KEY = "a-key-of-a-client-with-some-length"
AS_ALICE = {"authorization": f"Bearer {KEY}"}


def restart(served: Served, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "lmi_backend.cli.main", "restart", "--front-end"]
    url = f"http://{served.front_end}"
    return subprocess.Popen([*command, url, *more], stderr=subprocess.PIPE, text=True)


def output_of(command: subprocess.Popen[str], status: int) -> str:
    _, output = command.communicate(timeout=HANG_SECONDS)
    assert command.returncode == status, output
    return output


def pids(served: Served) -> list[int]:
    return sorted(each.pid for each in served.front_ends())


class _Crowd:
    """Clients that send short requests all the time, each on a new connection or on its own."""

    def __init__(self, served: Served) -> None:
        self._served, self._ended = served, threading.Event()
        self.outcomes: Counter[str] = Counter()
        self._threads = [
            threading.Thread(target=self._run, args=(number % 2 == 0,)) for number in range(8)
        ]

    def __enter__(self) -> "_Crowd":
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for each in self._threads:
            each.join()

    def _run(self, is_new: bool) -> None:
        connection = http.client.HTTPConnection(self._served.front_end, timeout=HANG_SECONDS)
        with contextlib.closing(connection):
            while not self._ended.wait(0.01):
                try:
                    connection.request("POST", CHATS, SHORT, AS_ALICE)
                    response = connection.getresponse()
                    outcome = f"{response.status} {len(json.loads(response.read())['choices'])}"
                except (OSError, http.client.HTTPException) as error:
                    outcome = repr(error)
                    connection.close()
                self.outcomes[outcome] += 1
                if is_new:
                    connection.close()


@contextlib.contextmanager
def serving(folder: Path, processes: int) -> Iterator[Served]:
    properties = write_properties(folder / "echo", ECHO)
    _write_keys(folder)
    options = ("--frontend-processes", str(processes), "--api-keys", str(folder / "keys"))
    with serve([properties], folder, *options) as served:
        wait_for(lambda: served.ask("/ping")[0] == 200)
        yield served


def _write_keys(folder: Path) -> None:
    (folder / "keys").write_text(f"alice {hash_of(KEY)}\n", encoding="ascii")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("one")


@pytest.fixture(scope="module")
def echo(folder: Path) -> Iterator[Served]:
    """`echo` with keys."""
    with serving(folder, 1) as served:
        yield served


def test_no_connection_is_refused_and_no_stream_is_cut(echo: Served, report: Report) -> None:
    check_restart(echo, report)


def check_restart(echo: Served, report: Report) -> None:
    bodies = [
        (path, json.dumps(body | {"model": "echo"}).encode()) for path, body in BODIES.items()
    ]
    with ThreadPoolExecutor(len(bodies)) as threads:
        got = threads.map(lambda each: follow(echo.port, *each, **AS_ALICE), bodies)
        plain = {
            path: _lasting(path, stream) for (path, _), stream in zip(bodies, got, strict=True)
        }
    before = pids(echo)
    began = echo.metric("lmi_generation_tokens_total", "echo")
    with _Crowd(echo) as crowd, ThreadPoolExecutor(STREAMS) as threads:

        def run(number: int) -> bool:
            path, body = bodies[number % len(bodies)]
            got = follow(echo.port, path, body, **AS_ALICE)
            return _lasting(path, got) == plain[path] and got.connections == 1

        results = threads.map(run, range(STREAMS))
        # On average, each has begun.
        wait_for(lambda: echo.metric("lmi_generation_tokens_total", "echo") > began + STREAMS * 20)
        both = [restart(echo), restart(echo)]
        output = [each.communicate(timeout=HANG_SECONDS)[1] for each in both]
        # The second one while the first was under way; the first waited for the streams.
        assert sorted(each.returncode for each in both) == [0, 1], output
        assert any("another restart of the front end has begun" in text for text in output), output
        assert sum(results) == STREAMS
    after = pids(echo)
    assert len(after) == len(before)
    assert not set(after) & set(before)
    assert set(crowd.outcomes) == {"200 1"}, crowd.outcomes
    count = crowd.outcomes.total()
    assert count > 200
    assert "model echo has gone" not in echo.log()
    processes = f"{len(before)} processes" if len(before) > 1 else "the front end"
    report.note_front(
        f"`restart --front-end` of {processes} amid {STREAMS} streams, and {count} short requests, "
        "half of them on new connections",
        f"0 refused, 0 cut: the streams end in the old process, {STREAMS} of {STREAMS} whole",
    )


def test_a_stream_that_takes_longer_is_cut_and_one_that_resumes_continues(echo: Served) -> None:
    body = json.dumps(BODIES[CHATS] | {"model": "echo", "max_tokens": 150}).encode()
    with ThreadPoolExecutor(2) as threads:
        plain = _lasting(CHATS, follow(echo.port, CHATS, body, **AS_ALICE))
        before = echo.metric("lmi_generation_tokens_total", "echo")
        headers = (AS_ALICE, AS_ALICE | {"x-lmi-resumable": "1"})
        streams = [threads.submit(follow, echo.port, CHATS, body, 0, **each) for each in headers]
        wait_for(lambda: echo.metric("lmi_generation_tokens_total", "echo") > before + 20)
        # So that neither stream ends before the front end is new.
        (worker,) = echo.workers("echo")
        worker.suspend()
        try:
            output = output_of(restart(echo, "--timeout", "0"), 1)
        finally:
            worker.resume()
        assert "1 old processes took longer than --timeout and were stopped" in output
        # `follow` sends each request again; that of the first one began anew.
        cut, resumed = (each.result() for each in streams)
    assert cut.connections > 1
    assert resumed.connections > 1
    assert _lasting(CHATS, resumed) == plain


def test_one_that_cannot_start_leaves_the_old_one_in_service(echo: Served, folder: Path) -> None:
    before = pids(echo)
    (folder / "keys").write_text("this is no key\n", encoding="ascii")
    output = output_of(restart(echo), 1)
    assert "the new front end exited with status 1: the old one stays" in output
    assert pids(echo) == before
    assert echo.ask(CHATS, SHORT, AS_ALICE)[0] == 200
    _write_keys(folder)
    assert "the old one has exited" in output_of(restart(echo), 0)
    assert echo.ask(CHATS, SHORT, AS_ALICE)[0] == 200
    assert not set(pids(echo)) & set(before)
    # One that dies afterwards is replaced as always.
    psutil.Process(pids(echo)[0]).kill()
    assert echo.ask(CHATS, SHORT, AS_ALICE)[0] == 200
