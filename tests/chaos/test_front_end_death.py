"""Streams whose front end is killed: their clients reconnect to the next one, and lack nothing."""

import contextlib
import http.client
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from lmi_backend.ipc.survivor import RETURN_SECONDS, places
from lmi_backend.supervisor.processes import lives
from tests.chaos.test_front_end import CHATS, ECHO, RESUMABLE
from tests.support.doubles.cutting_proxy import CuttingProxy, Stream, follow
from tests.support.records.measured import Report
from tests.support.run.waiting import HANG_SECONDS, wait_for
from tests.support.servers.serving import Served, front_end, serve, write_properties

STREAMS = 16
TOKENS = 300
PROMPT = "a b c d"
CHAT = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": TOKENS, "stream": True}
PARAMETERS = {"max_new_tokens": TOKENS, "output_formatter": "sse"}
BODIES: dict[str, dict[str, Any]] = {
    CHATS: CHAT,
    "/v1/completions": {"prompt": PROMPT, "max_tokens": TOKENS, "stream": True},
    "/invocations": {"inputs": PROMPT, "stream": True, "parameters": PARAMETERS},
    "/generate_stream": {"inputs": PROMPT, "parameters": {"max_new_tokens": TOKENS}},
}
RESPONSES = "/v1/responses"
STORY = {"model": "tiny", "input": "Tell a story:", "temperature": 0}


@pytest.fixture
def both(served: Served) -> Iterator[Served]:
    """A second front end of the server with vLLM; it has two processes."""
    options = (f"--run-folder={served.run_folder()}", "--frontend-processes=2")
    with front_end(served.log_file, *options) as front:
        wait_for(lambda: len(front.front_ends()) == 2 and front.ask("/ping")[0] == 200)
        yield front


def _state(served: Served, name: str = "echo") -> dict[str, Any]:
    models = json.loads(served.ask("/api/state")[2])["models"]
    return next(each for each in models if each["model"] == name)


def _buffered(served: Served, count: str) -> int:
    """Return a count of a model's buffered answers; none while it is not there."""
    return int(_state(served).get("buffered", {}).get(count, 0))


def _tokens(served: Served) -> float:
    return served.metric("lmi_generation_tokens_total", "echo")


def short_bodies(tokens: int) -> dict[str, bytes]:
    """Return a body of `echo` for each path, whose stream has so many tokens."""
    found = {}
    for path, body in BODIES.items():
        short: dict[str, Any] = {"max_tokens": tokens}
        if "parameters" in body:
            short = {"parameters": body["parameters"] | {"max_new_tokens": tokens}}
        found[path] = json.dumps(body | {"model": "echo"} | short).encode()
    return found


def kill_front_end(served: Served) -> psutil.Process:
    (process,) = served.front_ends()
    process.kill()
    return process


def _lasting(path: str, stream: Stream) -> Any:
    """Return what does not differ between two answers to one request."""
    if not path.startswith("/v1/"):
        return stream.events
    *parts, done = [event.partition(b"data: ")[2] for event in stream.events]
    choices = [json.loads(part)["choices"] for part in parts]
    return done, choices, len({json.loads(part)["id"] for part in parts})


def test_streams_outlive_their_front_end(echo: Served, report: Report) -> None:
    wait_for(lambda: echo.ask("/ping")[0] == 200)
    plain = {
        path: _lasting(path, follow(echo.port, path, json.dumps(body | {"model": "echo"}).encode()))
        for path, body in BODIES.items()
    }
    before, before_it = _tokens(echo), _buffered(echo, "reconnections")
    with CuttingProxy(echo.port).run() as proxy, ThreadPoolExecutor(STREAMS) as threads:

        def run(number: int) -> bool:
            path = list(BODIES)[number % len(BODIES)]
            body = json.dumps(BODIES[path] | {"model": "echo"}).encode()
            # The connections of half of them break before, or while there is no front end.
            proxied = number % 8 >= 4
            if proxied:
                proxy.cuts[f"cut-{number}.".encode()] = 2000 + number * 700
            port, mark = (proxy if proxied else echo).port, f"cut-{number}."
            got = follow(port, path, body, number % 3 / 4, **RESUMABLE, mark=mark)
            assert got.ids == [f"{got.ids[0][:16]}.{n}" for n in range(1, len(got.ids) + 1)]
            return _lasting(path, got) == plain[path] and got.connections > 1

        results = threads.map(run, range(STREAMS))
        # On average, each has begun: some are cut already, the others are not yet.
        wait_for(lambda: _tokens(echo) > before + STREAMS * 30)
        kill_front_end(echo)
        whole = sum(results)
    assert whole == STREAMS
    assert _buffered(echo, "reconnections") - before_it >= STREAMS
    wait_for(lambda: echo.metric("lmi_requests_open", "echo") == 0)
    report.note_front(
        f"the front end is killed, and with it {STREAMS} streams whose clients reconnect",
        f"the answers continue in the stub; their clients have the same text: {whole} of {STREAMS}",
    )


def test_a_front_end_that_starts_while_the_model_is_away_says_so(echo: Served) -> None:
    wait_for(lambda: echo.ask("/ping")[0] == 200)
    next(each for each in echo.family() if "triton_python" in each.name()).kill()
    kill_front_end(echo)
    seen: list[tuple[int, bool]] = []

    def is_back() -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, headers, _ = echo.ask(CHATS, {**CHAT, "model": "echo", "max_tokens": 1})
            seen.append((status, "retry-after" in headers))
        return bool(seen) and seen[-1][0] == 200

    wait_for(is_back)
    # No client is told that there is no such model.
    assert set(seen) <= {(503, True), (200, False)}


def test_a_stub_that_is_killed_as_its_model_is_unloaded_leaves_no_worker(echo: Served) -> None:
    # Triton unloads it, whose port opens last.
    wait_for(lambda: echo.is_up() and echo.is_ready("echo") and echo.ask("/ping")[0] == 200)
    (place,) = places(echo.run_folder(), "echo")
    (worker,) = echo.workers("echo")
    connection = http.client.HTTPConnection(echo.front_end, timeout=HANG_SECONDS)
    with contextlib.closing(connection), ThreadPoolExecutor(1) as threads:
        connection.request("POST", CHATS, json.dumps(CHAT | {"model": "echo", "max_tokens": 4000}))
        response = connection.getresponse()
        assert response.readline()
        unloading = threads.submit(echo.ask, "/models/echo", method="DELETE")
        # Its requests have 30 s to end.
        wait_for(lambda: place.read() is None)
        assert worker.is_running()
        next(each for each in echo.family() if "triton_python" in each.name()).kill()
        wait_for(lambda: not lives(worker), RETURN_SECONDS / 2)
        response.close()
        assert unloading.result()[0] == 200
    response_of(echo, "POST", "/models?url=echo")


def test_each_process_of_the_front_end_has_what_another_began(
    tmp_path: Path, report: Report
) -> None:
    count, bodies = 24, short_bodies(60)
    folder = write_properties(tmp_path / "echo", ECHO)
    with (
        serve([folder], tmp_path, "--frontend-processes", "3") as served,
        CuttingProxy(served.port).run() as proxy,
        ThreadPoolExecutor(count) as threads,
    ):
        wait_for(lambda: served.ask("/ping")[0] == 200)
        plain = {
            path: _lasting(path, follow(served.port, path, body)) for path, body in bodies.items()
        }

        def run(number: int) -> bool:
            path, mark = list(bodies)[number % len(bodies)], f"cut-{number}."
            proxy.cuts[mark.encode()] = 1000 + number * 150
            got = follow(proxy.port, path, bodies[path], number % 3 / 4, **RESUMABLE, mark=mark)
            return _lasting(path, got) == plain[path] and got.connections > 1

        results = threads.map(run, range(count))
        wait_for(lambda: not proxy.cuts)
        served.front_ends()[0].kill()
        whole = sum(results)
        assert whole == count
        assert _buffered(served, "reconnections") > 0
    report.note_front(
        f"one of 3 processes of the front end is killed while the connections of {count} streams "
        "are cut",
        "each client reconnects, most of them to another process, and has the same text: "
        f"{whole} of {count}",
    )


def response_of(served: Served, method: str, path: str, body: Any = None) -> dict[str, Any]:
    """Return the answer to a request, which is sent again while there is no front end."""
    found: dict[str, Any] = {}

    def has_answered() -> bool:
        data = None if body is None else json.dumps(body).encode()
        try:
            status, _, text = served.ask(path, data, method=method)
        except (OSError, http.client.HTTPException):
            return False
        assert status == 200, text
        found.update(json.loads(text))
        return True

    wait_for(has_answered)
    return found


def text_of(response: dict[str, Any]) -> str:
    parts = [part for item in response["output"] for part in item.get("content") or ()]
    return "".join(part["text"] for part in parts)


def test_each_process_has_the_responses_in_the_background(both: Served, report: Report) -> None:
    count = 6
    plain = text_of(response_of(both, "POST", RESPONSES, STORY))
    assert len(plain) > 100

    def state(path: str) -> tuple[str, str]:
        response = response_of(both, "GET", path)
        return response["status"], text_of(response)

    asked = STORY | {"background": True}
    begun = [response_of(both, "POST", RESPONSES, asked) for _ in range(count)]
    *others, last = (f"{RESPONSES}/{each['id']}" for each in begun)
    # Each is of a new connection, to one process or the other.
    assert all(state(others[0])[0] for _ in range(8))
    both.front_ends()[0].kill()
    cancelled = response_of(both, "POST", f"{last}/cancel")["status"]
    assert cancelled in ("cancelled", "completed")
    for path in others:
        wait_for(lambda path=path: state(path)[0] == "completed")  # type: ignore[misc]
        assert {state(path)[1] for _ in range(8)} == {plain}
    seen = Counter(state(last)[0] for _ in range(8))
    assert seen == {cancelled: 8}
    for path in (*others, last):
        assert response_of(both, "DELETE", path)["deleted"] is True
        assert {both.ask(path)[0] for _ in range(8)} == {404}
    report.note_front(
        f"one of 2 processes of the front end is killed amid {count} responses of vLLM in the "
        "background",
        "each process finds each of them by its id, cancels and deletes it: "
        f"{len(others)} of {len(others)} whole",
    )
