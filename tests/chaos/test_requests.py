"""Broken frames, broken requests, clients that leave or do not read, and a clock that jumps."""

import asyncio
import contextlib
import json
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc.aio

from lmi_backend.supervisor.processes import stubs_of
from tests.support.answers.streams import TritonStreams, request_of
from tests.support.answers.triton_client import strings, tensors
from tests.support.records.measured import Report
from tests.support.run.places import TESTS
from tests.support.run.waiting import HANG_SECONDS, wait_for
from tests.support.servers.serving import Served, serve, write_properties

STREAMS = 32
CANCELLED, LONG_CANCELLED = 2_500, 10_000
MANY, LONG_MANY = 4_000, 30_000
WAVE = 500
MORE = 50
"""Requests than fit: on a busy machine they take 3 s, in which the streams must not end."""
ECHO: dict[str, Any] = {"option.rolling_batch": "echo", "option.token_seconds": 0.02}


def _streams(served: Served, model: str, tokens: int = 300) -> TritonStreams:
    return TritonStreams(served, model, STREAMS, tokens)


def _assert_whole(streams: TritonStreams) -> None:
    streams.wait()
    assert streams.outcomes == {"whole": STREAMS}, streams.errors


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`echo`, `small` with room for few, and `frames`, whose user's handler breaks frames."""
    folder = tmp_path_factory.mktemp("calm")
    own = {"option.openai": "true", "option.fail_on": "fail", "option.max_rolling_batch_size": 64}
    limits = {"option.max_rolling_batch_size": STREAMS, "job_queue_size": 1}
    models = {"echo": ECHO | own, "small": ECHO | limits, "frames": ECHO}
    folders = [write_properties(folder / name, each) for name, each in models.items()]
    code = (TESTS / "support" / "doubles" / "frames_model.py").read_text(encoding="utf-8")
    (folder / "frames" / "model.py").write_text(code, encoding="utf-8")
    with serve(folders, folder) as server:
        yield server


@pytest.mark.parametrize(
    ("how", "fault", "words"),
    [
        ("half", "a socket is cut in the middle of a frame", "worker frames/0 "),
        ("garbage", "a frame that is no message", "a frame that cannot be read"),
        ("endless", "a frame of 4 GiB is announced", "a frame of 4294967295 bytes"),
    ],
)
def test_a_broken_frame(echo: Served, report: Report, how: str, fault: str, words: str) -> None:
    answers: list[dict[str, Any]] = []
    body = {"inputs": "a b", "stream": True, "parameters": {"max_new_tokens": 900}}

    def ask() -> None:
        with echo.events("frames", body) as events:
            answers.append(list(events)[-1])

    threads = [threading.Thread(target=ask) for _ in range(STREAMS)]
    for thread in threads:
        thread.start()
    wait_for(lambda: echo.metric("lmi_requests_open", "frames") == STREAMS)
    status, answer = echo.generate("frames", {"inputs": how})
    assert status == 400
    assert words in answer["error"]
    for thread in threads:
        thread.join(HANG_SECONDS)
    assert len(answers) == STREAMS
    assert all(words in each["error"] for each in answers)
    wait_for(lambda: echo.generate("frames", {"inputs": "a"})[0] == 200)
    wait_for(lambda: echo.metric("lmi_requests_open", "frames") == 0)
    error = json.loads(answers[0]["error"])["error"]
    report.note(fault, f"{STREAMS} streams failed with `{error}`; the worker is restarted")


def test_a_client_that_does_not_read(echo: Served, report: Report) -> None:
    (server,) = echo.named("tritonserver")
    stub = stubs_of(server.pid)["echo"]
    body = {"text_input": "word " * 500, "stream": True, "max_tokens": 2000}
    data = json.dumps(body).encode()
    before = server.memory_info().rss, stub.memory_info().rss
    with contextlib.ExitStack() as stack:
        for _ in range(STREAMS):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", echo.http_port)))
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.sendall(request_of("/v2/models/echo/generate_stream", data))
        wait_for(lambda: echo.metric("lmi_requests_open", "echo") == STREAMS)
        _assert_whole(_streams(echo, "echo"))
        grown = [
            (process.memory_info().rss - was) / 2**20
            for process, was in zip((server, stub), before, strict=True)
        ]
    wait_for(lambda: echo.metric("lmi_requests_open", "echo") == 0)
    # What they do not read is at most all of their answers, some 200 bytes a response.
    assert grown[0] < 100
    assert grown[1] < 50
    report.note(
        f"{STREAMS} clients do not read",
        f"{STREAMS} other streams finish; tritonserver grew by {grown[0]:.0f} MiB, the stub by "
        f"{grown[1]:.0f}",
    )


def test_more_requests_than_fit(echo: Served, report: Report) -> None:
    refused = []
    streams = _streams(echo, "small", 400)
    # One that came before the last of these would run, soon end and leave its place.
    wait_for(lambda: echo.metric("lmi_engine_requests_running", "small") == STREAMS)
    waiting = threading.Thread(target=echo.generate, args=("small", {"inputs": "a"}))
    waiting.start()
    wait_for(lambda: echo.metric("lmi_requests_open", "small") == STREAMS + 1)
    for _ in range(MORE):
        began = time.monotonic()
        status, answer = echo.generate("small", {"text_input": "a"})
        refused.append(time.monotonic() - began)
        # Triton 24.10 has no other for an error of the model.
        assert status == 400
        assert "the queue is full" in answer["error"]
        full = f"{STREAMS} requests run (option.max_rolling_batch_size) and 1 wait"
        assert full in answer["error"]
    _assert_whole(streams)
    waiting.join(HANG_SECONDS)
    refused.sort()
    report.note(
        f"{MORE} requests more than fit",
        f"each is refused, half of them within {refused[MORE // 2] * 1e3:.1f} ms, all within "
        f"{refused[-1] * 1e3:.0f} ms; {STREAMS} streams finish",
    )


async def _ask_and_leave(served: Served) -> None:
    """Start a wave of requests on one stream, and leave when the first has said something."""
    client = tritonclient.grpc.aio.InferenceServerClient(served.grpc)

    async def requests() -> Any:
        for _ in range(WAVE):
            yield {
                "model_name": "echo",
                "inputs": tensors(tritonclient.grpc.aio, {"text_input": strings("a b c")}),
                "parameters": {"max_tokens": 2000, "stream": True},
            }

    answers = client.stream_infer(requests())
    async for _ in answers:
        break
    answers.cancel()
    await client.close()


def test_thousands_of_cancelled_requests(echo: Served, report: Report, is_long: bool) -> None:
    began, count = time.monotonic(), LONG_CANCELLED if is_long else CANCELLED
    for _ in range(count // WAVE):
        asyncio.run(_ask_and_leave(echo))
    wait_for(lambda: echo.metric("lmi_requests_open", "echo") == 0)
    wait_for(lambda: echo.metric("lmi_engine_requests_running", "echo") == 0)
    wait_for(lambda: echo.metric("lmi_engine_requests_waiting", "echo") == 0)
    assert echo.generate("echo", {"text_input": "a", "max_tokens": 2})[0] == 200
    seconds = time.monotonic() - began
    report.note(
        f"{count} requests whose clients disconnect",
        f"after {seconds:.0f} s none is open, running or waiting",
    )


async def _ask_many(served: Served, count: int) -> int:
    client = tritonclient.grpc.aio.InferenceServerClient(served.grpc)
    left = iter(range(count))

    async def requests() -> Any:
        for _ in left:
            await places.acquire()
            more = {"max_tokens": 2}
            yield {
                "model_name": "echo",
                "inputs": tensors(tritonclient.grpc.aio, {"text_input": strings("a b c")}),
                "parameters": more,
            }

    # As many at once as the model takes.
    places = asyncio.Semaphore(64)
    num_answers = 0
    async for result, error in client.stream_infer(requests()):
        assert error is None, error
        if result.get_response().parameters["triton_final_response"].bool_param:
            num_answers += 1
            places.release()
            if num_answers == count:
                break
    await client.close()
    return num_answers


def test_memory_after_thousands_of_requests(echo: Served, report: Report, is_long: bool) -> None:
    count = LONG_MANY if is_long else MANY
    family, counted = echo.family(), echo.settled("lmi_requests_total", "echo")
    asyncio.run(_ask_many(echo, 3_000))
    before = {each: each.memory_info().rss for each in family}
    assert asyncio.run(_ask_many(echo, count)) == count
    grown = {each: each.memory_info().rss / was - 1 for each, was in before.items()}
    names = {each: each.name() for each in family}
    assert all(share < 0.05 for share in grown.values()), {
        names[each]: share for each, share in grown.items()
    }
    wait_for(lambda: echo.metric("lmi_requests_total", "echo") == counted + count + 3_000)
    shares = ", ".join(f"{names[each]} {share:+.1%}" for each, share in grown.items())
    report.note(f"{count} requests", f"each answered once; memory after the first 3,000: {shares}")


def _wait_for_dates(served: Served, count: int) -> None:
    """Wait until a server's log has lines of so many days."""
    date = re.compile(r"^\d{4}-\d\d-\d\d ", re.MULTILINE)
    wait_for(lambda: len(set(date.findall(served.log()))) >= count)


def test_a_clock_that_jumps(
    tmp_path: Path, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    offset, library = tmp_path / "offset", tmp_path / "clock.so"
    offset.write_text("0", encoding="utf-8")
    source = Path(__file__).with_name("clock.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", library, source], check=True)
    with monkeypatch.context() as moved:
        moved.setenv("LD_PRELOAD", str(library))
        moved.setenv("CLOCK_OFFSET", str(offset))
        served = tmp_path / "echo"
        options = ("--open-api", "model-repository")
        with serve([write_properties(served, ECHO)], tmp_path, *options) as server:
            moved.undo()
            streams = _streams(server, "echo", 200)
            for days, dates in ((3, 2), (-3, 3), (0, 3)):
                offset.write_text(str(days * 86_400), encoding="utf-8")
                # Something that Triton logs.
                server.post("/v2/repository/models/none/load", {})
                _wait_for_dates(server, dates)
                streams.wait_for_more()
            _assert_whole(streams)
            assert server.settled("lmi_worker_deaths_total", "echo") == 0
    report.note("the clock jumps three days on and back", f"{STREAMS} streams finish")
