"""Clients of the front end that leave, vanish, dawdle or are too many, and other clients beside."""

import asyncio
import contextlib
import http.client
import json
import random
import resource
import signal
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import psutil
import pytest

from tests.support.answers.streams import (
    KINDS,
    FrontStreams,
    ask_and_wait,
    body_of,
    request_of,
    vanish,
)
from tests.support.records.measured import Report
from tests.support.run.waiting import HANG_SECONDS, nothing_more, wait_for
from tests.support.servers.serving import SETTLING, Served, serve, write_properties

CLIENT_SECONDS = 3
IDLE_SECONDS = 4
LEAVERS, LONG_LEAVERS = 1_000, 10_000
AT_ONCE = 250
IDLE = 1_000
ECHO = {"option.rolling_batch": "echo", "option.openai": "true", "option.token_seconds": 0.02}
CHATS, RESUMABLE = "/v1/chat/completions", {"x-lmi-resumable": "1"}
SHORT = {"inputs": "a", "parameters": {"max_new_tokens": 2}}


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`echo`, whose clients have less time than by default."""
    folder = tmp_path_factory.mktemp("front")
    options = ("--client-timeout", str(CLIENT_SECONDS), "--keep-alive", str(IDLE_SECONDS))
    with serve([write_properties(folder / "echo", ECHO)], folder, *options) as served:
        wait_for(lambda: served.ask("/ping")[0] == 200)
        yield served


@pytest.fixture
def process(front: Served) -> Iterator[psutil.Process]:
    """The front end's process, which afterwards has no more descriptors than before."""
    (process,) = front.front_ends()
    wait_until_quiet(front)
    before = descriptors(front, process)
    yield process
    wait_until_quiet(front)
    wait_for(lambda: descriptors(front, process) <= before)
    assert process.is_running()


def descriptors(served: Served, process: psutil.Process) -> int:
    """Return how many a process has, but for connections to Triton that it keeps for the next."""
    kept = (served.http_port, served.metrics_port)
    # First: one that is closed in between makes the result too large, and not too small for ever.
    descriptors = process.num_fds()
    connections = process.net_connections("tcp")
    to_triton = [each for each in connections if each.raddr and each.raddr.port in kept]
    return int(descriptors) - len(to_triton)


def wait_until_quiet(served: Served) -> None:
    """Wait until the model has no request and the engine runs none."""
    for name in ("requests_open", "engine_requests_running", "engine_requests_waiting"):
        wait_for(lambda name=name: served.metric(f"lmi_{name}", "echo") == 0)  # type: ignore[misc]


def connect(front: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", front.port), timeout=HANG_SECONDS)


def read_until_closed(connection: socket.socket) -> bytes:
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            data += part
    return data


def test_clients_that_never_read(front: Served, process: psutil.Process, report: Report) -> None:
    """Nobody's memory grows without bound."""
    (stub,) = front.named("stub")
    before = [each.memory_info().rss for each in (process, stub)]
    # One word: with 50 a second, 10 MB a second for each client.
    words = "x" * 200_000
    with contextlib.ExitStack() as stack:
        beside = FrontStreams(front, "echo", 16, 200)
        began = time.monotonic()
        for kind in ("OpenAI", "LMI", "TGI") * 2:
            slow = socket.socket()
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stack.enter_context(slow)
            slow.connect(("127.0.0.1", front.port))
            slow.sendall(request_of(*body_of(kind, "echo", 3000, words)))
        wait_for(lambda: front.metric("lmi_requests_open", "echo") >= 6)
        peak = [0, 0]

        def grow() -> bool:
            for index, each in enumerate((process, stub)):
                peak[index] = max(peak[index], each.memory_info().rss - before[index])
            return front.metric("lmi_requests_open", "echo") == 0

        wait_for(grow)
        seconds = time.monotonic() - began
        beside.assert_whole()
    grown = [each / 2**20 for each in peak]
    # 8 MiB that wait, a frame that comes and what is written of it, for each of them.
    assert grown[0] < 6 * 30
    assert grown[1] < 200
    report.note_front(
        "6 clients of the front end never read what comes, 10 MB a second for each",
        f"they are cut off after {seconds:.0f} s (`--client-timeout {CLIENT_SECONDS}`, or 8 MiB "
        f"that wait). The front end grew by {grown[0]:.0f} MiB meanwhile, the stub by "
        f"{grown[1]:.0f}. 16 other streams finish",
    )


def test_clients_that_vanish(front: Served, process: psutil.Process, report: Report) -> None:
    # Before anything runs, where it may not be done.
    with socket.socket() as probe:
        vanish(probe)
    before = descriptors(front, process)
    beside = FrontStreams(front, "echo", 16, 300)
    with contextlib.ExitStack() as stack:
        gone = [stack.enter_context(ask_and_wait(front, kind, 4000)) for kind in KINDS * 4]
        # Those that wait for an answer of which nothing comes yet, and those that wait for nothing.
        for number in range(8):
            silent = stack.enter_context(connect(front))
            long = b'{"inputs": "a", "parameters": {"max_new_tokens": 4000}}'
            silent.sendall(request_of("/invocations", long) if number % 2 else b"")
            gone.append(silent)
        wait_for(lambda: front.metric("lmi_requests_open", "echo") >= 16 + 4)
        began = time.monotonic()
        for each in gone:
            vanish(each)
        beside.assert_whole()
        wait_for(lambda: front.metric("lmi_requests_open", "echo") == 0)
        wait_for(lambda: descriptors(front, process) <= before)
        seconds = time.monotonic() - began
    report.note_front(
        f"{len(gone)} clients of the front end vanish silently, {len(gone) - 4} with a request",
        f"their requests are cancelled and their connections closed within {seconds:.0f} s "
        f"(`--client-timeout {CLIENT_SECONDS}`). 16 other streams finish",
    )


def test_bodies_and_headers_a_byte_a_second(
    front: Served, process: psutil.Process, report: Report
) -> None:
    request = request_of(*body_of("OpenAI", "echo", 5))
    head = request.index(b"\r\n\r\n") + 4
    began = time.monotonic()
    # In the body, in the headers, after an answer that did not wait for the body, and between two.
    starts = {
        "body": request[: head + 1],
        "head": request[: head - 8],
        "refused": request[:head].replace(b"/v1/completions", b"/v1/unknown"),
        "between": request,
    }
    with contextlib.ExitStack() as stack:
        slow = {}
        for name, data in starts.items():
            slow[name] = stack.enter_context(connect(front))
            slow[name].sendall(data)
        left = dict(slow)
        answers = dict.fromkeys(slow, b"")
        while left:
            assert time.monotonic() < began + HANG_SECONDS
            assert front.ask("/invocations", SHORT)[0] == 200
            for name, connection in list(left.items()):
                with contextlib.suppress(OSError):
                    connection.sendall(b"\n" if name == "between" else b"x")
                connection.settimeout(0.2)
                with contextlib.suppress(TimeoutError):
                    part = b""
                    with contextlib.suppress(ConnectionResetError):
                        part = connection.recv(65536)
                    answers[name] += part
                    if not part:
                        del left[name]
    seconds = time.monotonic() - began
    assert answers["body"].startswith(b"HTTP/1.1 408 ")
    assert b"\r\nconnection: close\r\n" in answers["body"]
    assert answers["head"] == b""
    assert answers["refused"].startswith(b"HTTP/1.1 404 ")
    assert answers["between"].startswith(b"HTTP/1.1 200 ")
    report.note_front(
        "a body, headers, and what is no request, a byte a second",
        f"408 and closed, closed, and closed, all within {seconds:.0f} s (`--client-timeout "
        f"{CLIENT_SECONDS}`, `--keep-alive {IDLE_SECONDS}`); others are answered",
    )


def test_a_thousand_idle_connections(
    front: Served, process: psutil.Process, report: Report
) -> None:
    request = request_of("/invocations", b'{"inputs": "a", "parameters": {"max_new_tokens": 2}}')
    beside = FrontStreams(front, "echo", 16, 200)
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connect(front)) for _ in range(IDLE)]
        for each in idle[::10]:
            each.sendall(request)
        # The system has taken them; the front end takes one after the other.
        wait_for(lambda: descriptors(front, process) >= IDLE)
        assert front.ask("/invocations", SHORT)[0] == 200
        began = time.monotonic()
        answers = [read_until_closed(each) for each in idle]
        seconds = time.monotonic() - began
        assert all(each.startswith(b"HTTP/1.1 200 ") for each in answers[::10])
        assert not any(answers[1::10])
    beside.assert_whole()
    report.note_front(
        f"{IDLE} idle connections to the front end",
        f"others are answered; all are closed after {seconds:.0f} s (`--client-timeout "
        f"{CLIENT_SECONDS}` before the first request, `--keep-alive {IDLE_SECONDS}` after one)",
    )


def test_more_connections_than_descriptors(
    front: Served, process: psutil.Process, report: Report
) -> None:
    most = process.rlimit(resource.RLIMIT_NOFILE)
    allowed = 400
    beside = FrontStreams(front, "echo", 16, 200)
    process.rlimit(resource.RLIMIT_NOFILE, (allowed, most[1]))
    try:
        with contextlib.ExitStack() as stack:
            for number in range(allowed + IDLE):
                stack.enter_context(connect(front))
                if number % 100 == 0:
                    assert front.ask("/invocations", SHORT)[0] == 200
            assert descriptors(front, process) < allowed
            beside.assert_whole()
    finally:
        process.rlimit(resource.RLIMIT_NOFILE, most)
    report.note_front(
        f"{IDLE} connections more than the front end has descriptors",
        "those that are idle for the longest time are closed; each other request is "
        "answered, and 16 streams finish",
    )


async def _leave(front: Served, number: int, chance: random.Random) -> str:
    """Ask, and leave at some moment; return how much of the answer had come."""
    moment = ("in the body", "before an answer", "in the middle", "at the end")[number % 4]
    kind = KINDS[number // 4 % len(KINDS)]
    tokens = chance.randrange(1, 4) if moment == "at the end" else 2000
    request = request_of(*body_of(kind, "echo", tokens), "connection: close")
    if moment == "in the body":
        request = request[: -chance.randrange(1, 30)]
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    try:
        writer.write(request)
        await _read_some(reader, moment, chance)
    finally:
        if number % 5 == 0:
            # Without a last word: a reset.
            linger = struct.pack("ii", 1, 0)
            own = writer.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    return moment


async def _read_some(reader: asyncio.StreamReader, moment: str, chance: random.Random) -> None:
    if moment == "in the middle":
        assert (await reader.read(100)).startswith(b"HTTP/1.1 200 ")
        for _ in range(chance.randrange(3)):
            assert await reader.read(100)
    elif moment == "at the end":
        answer = await reader.read(-1)
        assert answer.startswith(b"HTTP/1.1 200 "), answer
    elif chance.random() < 0.7:
        # After the front end has read what there is, or while it does.
        await asyncio.sleep(chance.random() * 0.02)


async def _leave_often(front: Served, count: int) -> Counter[str]:
    chance = random.Random(0)
    places = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> str:
        async with places:
            return await _leave(front, number, chance)

    return Counter(await asyncio.gather(*(one(number) for number in range(count))))


def _logged(front: Served) -> int:
    """Return how many requests the access log has that leavers send."""
    log = front.log()
    return sum(log.count(f"POST {body_of(kind, 'echo', 1)[0]} ") for kind in KINDS)


def test_thousands_of_leavers(
    front: Served, process: psutil.Process, report: Report, is_long: bool
) -> None:
    count = LONG_LEAVERS if is_long else LEAVERS
    warm, logged = 500, _logged(front)
    asyncio.run(_leave_often(front, warm))
    # The log tells the end of each; the metrics may still be those of before.
    wait_for(lambda: _logged(front) == logged + warm)
    counted = front.settled("lmi_requests_total", "echo")
    wait_until_quiet(front)
    fds, rss = descriptors(front, process), process.memory_info().rss
    began = time.monotonic()
    left = asyncio.run(_leave_often(front, count))
    wait_until_quiet(front)
    wait_for(lambda: descriptors(front, process) <= fds)
    seconds = time.monotonic() - began
    # Each is logged once. What was never whole, and it alone, never reached the model; of those
    # that left before an answer some were gone before they were read.
    wait_for(lambda: _logged(front) == logged + warm + count)
    whole = left["in the middle"] + left["at the end"]
    reached = front.settled("lmi_requests_total", "echo") - counted - SETTLING
    assert whole <= reached <= count - left["in the body"]
    grown = process.memory_info().rss - rss
    assert grown < 10 * 2**20
    assert _processor_seconds(process, 1.0) < 0.5
    report.note_front(
        f"{count} clients of the front end leave: in the body, before an answer, in the middle, "
        "at the end",
        f"after {seconds:.0f} s none is open, running or waiting, each is logged once, no "
        f"descriptor is left and the front end grew by {grown / 2**20:.1f} MiB",
    )


def _processor_seconds(process: psutil.Process, seconds: float) -> float:
    """Return the processor time that a process takes in some seconds in which nobody asks."""
    before = process.cpu_times()
    nothing_more(seconds, "the front end has nothing to do")
    after = process.cpu_times()
    return float(after.user + after.system - before.user - before.system)


class Crowd:
    """Clients that send a short request after the other; what came of those of each.

    Each stays on one connection, or has a new one for each request. It tries again after a 503.
    """

    def __init__(self, front: Served, *asked: tuple[str, object], **headers: str) -> None:
        self._front, self._headers, self._ended = front, headers, threading.Event()
        self.seen = [Counter[str]() for _ in asked]
        self._threads = [
            threading.Thread(target=self._run, args=(number, path, json.dumps(body)))
            for number, (path, body) in enumerate(asked)
        ]

    def __enter__(self) -> "Crowd":
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for each in self._threads:
            each.join()

    def _run(self, number: int, path: str, body: str) -> None:
        connection = http.client.HTTPConnection(self._front.front_end, timeout=HANG_SECONDS)
        with contextlib.closing(connection):
            while not self._ended.wait(0.01):
                try:
                    connection.request("POST", path, body, self._headers)
                    outcome = _outcome(connection.getresponse())
                except (OSError, http.client.HTTPException) as error:
                    outcome = repr(error)
                    connection.close()
                self.seen[number][outcome] += 1
                if number % 2:
                    connection.close()

    @property
    def all(self) -> Counter[str]:
        return sum(self.seen, Counter())


def _outcome(response: http.client.HTTPResponse) -> str:
    text = response.read()
    if response.status == 200:
        return "whole"
    if (response.headers["retry-after"], response.headers["connection"]) == ("1", "close"):
        return "refused"
    return f"{response.status} {response.getheaders()} {text[:200]!r}"


def test_a_drain_under_load_loses_no_request(
    serve_echo: Callable[[str], AbstractContextManager[Served]], report: Report
) -> None:
    completion = {"model": "echo", "prompt": "a", "max_tokens": 3}
    bodies = [("/v1/completions", completion), ("/invocations", SHORT), ("/generate", SHORT)]
    with serve_echo("drained") as front:
        wait_for(lambda: front.ask("/ping")[0] == 200)
        last = FrontStreams(front, "echo", 1, 200)
        streams = FrontStreams(front, "echo", 32, 100)
        with Crowd(front, *bodies, *bodies) as crowd:
            wait_for(lambda: all(each["whole"] for each in crowd.seen))
            family = front.family()
            front.process.send_signal(signal.SIGTERM)
            began = time.monotonic()
            wait_for(lambda: front.ask("/ping")[0] == 503)
            unready = time.monotonic() - began
            assert not any(each.endings for each in streams.all)
            assert front.ask("/live")[0] == 200
            streams.assert_whole()
        last.assert_whole()
        assert front.stop() == 0
    assert not [each for each in family if each.is_running()]
    seen = crowd.all
    assert set(seen) == {"whole", "refused"}, seen
    assert all(each["refused"] for each in crowd.seen)
    report.note_front(
        "`serve` is told to stop under 33 streams and a steady flow of requests",
        f"`/ping` says 503 after {unready * 1e3:.0f} ms; all streams finish. {seen['whole']} "
        f"requests were answered, {seen['refused']} that came later got 503 with `Retry-After` and "
        "`Connection: close`, none was lost; no process is left",
    )
