"""A front end that is told to leave: no connection is refused, and no stream is cut."""

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lmi_backend.frontend.http.api_keys import hash_of
from tests.chaos.test_front_end import CHATS, ECHO, Crowd
from tests.chaos.test_front_end_death import BODIES, _lasting
from tests.support.doubles.cutting_proxy import follow
from tests.support.records.measured import Report
from tests.support.run.waiting import wait_for
from tests.support.servers.serving import Served, serve, write_properties

STREAMS = 16
SHORT = {"model": "echo", "messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
KEY = "a-key-of-a-client-with-some-length"
AS_ALICE = {"authorization": f"Bearer {KEY}"}


def pids(served: Served) -> list[int]:
    return sorted(each.pid for each in served.front_ends())


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


def test_no_connection_is_refused_and_no_stream_is_cut(
    tmp_path: Path, report: Report, is_long: bool
) -> None:
    for processes in (1, 2) if is_long else (2,):
        with serving(tmp_path, processes) as served:
            _check(served, report)


def _check(echo: Served, report: Report) -> None:
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
    with (
        Crowd(echo, *[(CHATS, SHORT)] * 8, **AS_ALICE) as crowd,
        ThreadPoolExecutor(STREAMS) as threads,
    ):

        def run(number: int) -> bool:
            path, body = bodies[number % len(bodies)]
            got = follow(echo.port, path, body, **AS_ALICE)
            return _lasting(path, got) == plain[path] and got.connections == 1

        results = threads.map(run, range(STREAMS))
        # On average, each has begun.
        wait_for(lambda: echo.metric("lmi_generation_tokens_total", "echo") > began + STREAMS * 20)
        for each in before:
            os.kill(each, signal.SIGUSR2)
        assert sum(results) == STREAMS
        wait_for(lambda: not set(pids(echo)) & set(before))
        wait_for(lambda: crowd.all["whole"] > 200)
    after = pids(echo)
    assert len(after) == len(before)
    count = crowd.all["whole"]
    assert crowd.all.total() == count, crowd.all
    assert "model echo has died" not in echo.log()
    assert "model echo was unloaded" not in echo.log()
    processes = f"{len(before)} processes" if len(before) > 1 else "the front end"
    report.note_front(
        f"SIGUSR2 for {processes} amid {STREAMS} streams, and {count} short requests, half of them "
        "on new connections",
        f"0 refused, 0 cut: the streams end in the old process, {STREAMS} of {STREAMS} whole",
    )
