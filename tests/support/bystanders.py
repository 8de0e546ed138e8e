"""Clients that do nothing wrong: streams in every dialect, and what became of each."""

import asyncio
import contextlib
import time
from dataclasses import dataclass, field

from tests.support.streams import KINDS, Stream, body_of, request_of
from tests.support.waiting import HANG_SECONDS


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

    async def run(self, until: asyncio.Event) -> Seen:
        """Ask again and again; return what was seen."""
        self.seen = Seen()
        beating = asyncio.create_task(self._beat())
        await asyncio.gather(*(self._repeat(number, until) for number in range(self._count)))
        beating.cancel()
        return self.seen

    async def _beat(self) -> None:
        """Measure how long this process does not run: the machine may have none to spare."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.02)
            self._slept += max(0.0, time.monotonic() - began - 0.05)

    async def _repeat(self, number: int, until: asyncio.Event) -> None:
        kind = KINDS[number % len(KINDS)]
        while not until.is_set():
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
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        return _read(kind, body)


def _read(kind: str, body: bytes) -> list[str]:
    """Return an answer's text, however it was cut into events, and its endings."""
    stream = Stream(kind)
    for line in body.splitlines():
        stream.take(line)
    return [stream.text, *stream.endings, stream.error]
