"""One request harms no other: streams continue beside clients that do what no client should do."""

import asyncio
import itertools
import multiprocessing
import os
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.support.answers.streams import KINDS, Stream, body_of, request_of
from tests.support.harm.hostile_clients import EXCHANGES, exchange, harm
from tests.support.records.measured import Report
from tests.support.run.waiting import HANG_SECONDS, until, wait_for
from tests.support.servers.serving import Served, serve, write_properties


@dataclass
class Seen:
    faults: list[str] = field(default_factory=list)
    streams: int = 0
    events: int = 0
    pause: float = 0.0
    """The longest silence of a stream, in seconds, without what this process slept through."""


class Bystanders:
    """Keeps streams open until it is told to stop.

    Args:
        port: of the front end.
        count: streams at once.
        tokens: of each.
        longest: seconds that a stream may be silent.
    """

    def __init__(self, port: int, count: int, tokens: int, longest: float) -> None:
        self._port, self._count, self._tokens, self._longest = port, count, tokens, longest
        self._expected: dict[str, list[str]] = {}
        self._slept = 0.0
        self.seen = Seen()

    async def learn(self) -> None:
        """Take the answers that come while nobody harms for those that always come."""
        self.seen = Seen()
        for kind in KINDS:
            self._expected[kind] = await self._ask(kind)
        assert not self.seen.faults, self.seen.faults

    async def run(self, over: asyncio.Event) -> Seen:
        """Ask again and again; return what was seen."""
        self.seen = Seen()
        beating = asyncio.create_task(self._beat())
        await asyncio.gather(*(self._repeat(number, over) for number in range(self._count)))
        beating.cancel()
        return self.seen

    async def _beat(self) -> None:
        """Measure how long this process does not run: the machine may have none to spare."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.02)
            self._slept += max(0.0, time.monotonic() - began - 0.05)

    async def _repeat(self, number: int, over: asyncio.Event) -> None:
        kind = KINDS[number % len(KINDS)]
        while not over.is_set():
            try:
                answer = await asyncio.wait_for(self._ask(kind), HANG_SECONDS)
            except (
                OSError,
                asyncio.TimeoutError,
                asyncio.IncompleteReadError,
                ValueError,
            ) as error:
                self.seen.faults.append(f"{kind}: {error!r}")
                await asyncio.sleep(0.2)
                continue
            self.seen.streams += 1
            if answer != self._expected[kind]:
                self.seen.faults.append(f"{kind}: another answer, that is {answer!r}")

    async def _ask(self, kind: str) -> list[str]:
        """Return a whole answer: its text, and how it ended."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        body = b""
        try:
            writer.write(request_of(*body_of(kind, "echo", self._tokens, f" {kind}")))
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200 "):
                rest = await reader.read(500)
                raise ValueError(f"{head[:20]!r} {rest!r}")
            heard, slept = time.monotonic(), self._slept
            while size := int(await reader.readline(), 16):
                body += (await reader.readexactly(size + 2))[:-2]
                now = time.monotonic()
                pause = now - heard - (self._slept - slept)
                self.seen.pause = max(self.seen.pause, pause)
                if pause > self._longest:
                    self.seen.faults.append(f"{kind}: silent for {pause:.1f} s")
                heard, slept = now, self._slept
                self.seen.events += 1
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        return _read(kind, body)


def _read(kind: str, body: bytes) -> list[str]:
    """Return an answer's text, however it was cut into events, and its endings."""
    stream = Stream(kind)
    for line in body.splitlines():
        stream.take(line)
    return [stream.text, *stream.endings, stream.error]


SEED = int(os.environ.get("LMI_BACKEND_TEST_SEED", "0"))
"""Of the first exchange; another one makes another test."""
SECONDS, LONG_SECONDS = 16, 900
STREAMS, TOKENS = 16, 100
LONGEST_PAUSE, LONGEST_BESIDE_TESTS = 1.0, 8.0
"""Seconds; `make test` runs others on the same cores. What is looked for stops all for 10 s."""
HARMFUL = 4
"""Clients at once that harm."""
GROWTH = 400 << 20
"""Bytes that a process may have more after the second half of the exchanges than after the first:
allocators keep some of what large bodies took."""


@pytest.fixture
def echo(tmp_path: Path) -> Iterator[Served]:
    """Two workers of `echo`, with an alias model that Triton answers."""
    properties = {
        "option.rolling_batch": "echo",
        "option.openai": "true",
        "option.token_seconds": 0.02,
        "minWorkers": 2,
        "maxWorkers": 2,
    }
    folder = write_properties(tmp_path / "echo", properties)
    with serve([folder], tmp_path, "--clients", "infer") as served:
        wait_for(lambda: served.ask("/ping")[0] == 200)
        yield served


class Harm:
    """Harmful clients in processes of their own, and bystanders in this one."""

    def __init__(self, served: Served, pool: ProcessPoolExecutor, longest: float) -> None:
        self._port, self._pool = served.port, pool
        self._bystanders = Bystanders(served.port, STREAMS, TOKENS, longest)
        self.done: list[int] = []
        """Seeds of exchanges that began."""

    async def learn(self) -> None:
        """Hear what bystanders are answered while nobody harms."""
        await self._bystanders.learn()

    async def run(self, seeds: Iterator[int], seconds: float) -> Seen:
        """Let bystanders and exchanges run side by side, and bystanders a moment longer."""
        over, end = asyncio.Event(), time.monotonic() + seconds
        watching = asyncio.create_task(self._bystanders.run(over))
        await asyncio.gather(*(self._harm(seeds, end) for _ in range(HARMFUL)))
        # Each has a whole stream after the last harm.
        seen = self._bystanders.seen
        count = seen.streams + 2 * STREAMS
        await until(lambda: seen.streams >= count or seen.faults)
        over.set()
        return await watching

    async def _harm(self, seeds: Iterator[int], end: float) -> None:
        loop = asyncio.get_running_loop()
        for seed in seeds:
            self.done.append(seed)
            await loop.run_in_executor(self._pool, harm, self._port, seed)
            if time.monotonic() > end or self._bystanders.seen.faults:
                return


@asynccontextmanager
async def harming(served: Served, longest: float) -> AsyncIterator[Harm]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(HARMFUL, mp_context=context) as pool:
        harmful = Harm(served, pool, longest)
        await harmful.learn()
        yield harmful


def lasting(served: Served) -> set[int]:
    """Return the processes that no client may end, by id."""
    return {each.pid for each in served.family()} - {each.pid for each in served.workers("echo")}


def memory(served: Served) -> dict[str, int]:
    found = {}
    for each in served.family():
        with suppress(psutil.NoSuchProcess):
            found[f"{each.name()} {each.pid}"] = each.memory_info().rss
    return found


async def test_no_client_harms_another(echo: Served, report: Report, is_long: bool) -> None:
    half = (LONG_SECONDS if is_long else SECONDS) / 2
    processes = lasting(echo)
    seeds = itertools.count(SEED)
    held = []
    async with harming(echo, LONGEST_PAUSE if is_long else LONGEST_BESIDE_TESTS) as harmful:
        for _ in range(2):
            # One of two workers ends too: its streams resume in the other.
            asyncio.get_running_loop().call_later(half / 2, echo.workers("echo")[0].kill)
            seen = await harmful.run(seeds, half)
            if seen.faults:
                last = [(seed, exchange(seed).__name__) for seed in harmful.done[-40:]]
                pytest.fail(f"{seen.faults[:5]}; the last exchanges were {last}")
            # Whoever was slow has left.
            wait_for(lambda: echo.metric("lmi_requests_open", "echo") == 0)
            wait_for(lambda: len(echo.workers("echo")) == 2)
            held.append(memory(echo))
    assert seen.streams >= STREAMS
    assert lasting(echo) == processes
    assert "Traceback" not in echo.log()
    grown = {name: held[1].get(name, 0) - size for name, size in held[0].items()}
    assert max(grown.values()) < GROWTH, grown
    report.note_front(
        f"{len(harmful.done)} harmful exchanges of {len(EXCHANGES)} kinds in {2 * half:.0f} s, by "
        f"{HARMFUL} clients at once, and two workers of echo that are killed",
        f"{STREAMS} other streams at a time have the same bytes as without them and pause for "
        f"{seen.pause:.1f} s at most; no other process stops, none grows by more than "
        f"{max(grown.values()) / 2**20:.0f} MiB in the second half",
    )
