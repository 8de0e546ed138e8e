"""Predict what one server carries, from what a request, a response and a token cost.

    python tools/scale.py                            the table of docs/scaling.md
    python tools/scale.py --streams 512 --rate 40 --cores 96 --workers 2
    python tools/scale.py --fit                      measure the costs here, and test predictions

A simulation of streams, the workers' flush policy, the stub and tritonserver. A response costs a
worker, the stub and the server their part; the stub's Python runs on one core, whatever the machine
has.
What comes for a stream while its response waits joins that response, as in the real stub.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lmi_backend.ipc.flush_policy import FlushPolicy

ROOT = Path(__file__).resolve().parent.parent
COSTS = ROOT / "benchmarks" / "costs.json"
_SECONDS = 2.0
_WARM = 0.5
_MILLION = 1e6


@dataclass(frozen=True)
class Costs:
    """CPU in microseconds, as measured; benchmarks/costs.json says how."""

    worker_token: float
    worker_request: float
    stub_response: float
    stub_token: float
    stub_request: float
    server_response: float
    server_request: float

    @classmethod
    def measured(cls) -> Costs:
        """Return those of the file."""
        return cls(**json.loads(COSTS.read_text(encoding="utf-8"))["costs_us"])


@dataclass(frozen=True)
class Load:
    """What clients ask for, and what is there to answer."""

    streams: int
    rate: float
    """Tokens a second the engine makes for each stream."""
    tokens: int = 256
    """Of an answer."""
    cores: int = 96
    workers: int = 1


@dataclass
class Outcome:
    """What a simulated server did."""

    load: Load
    tokens: int = 0
    responses: int = 0
    requests: int = 0
    busy: dict[str, float] = field(default_factory=dict)
    """Cores in use by class of process; a stub has no more than one to give."""
    delays: list[float] = field(default_factory=list)
    """Seconds from a token to the response that holds it."""

    seconds: float = _SECONDS

    @property
    def tokens_per_second(self) -> float:
        """Of all streams."""
        return self.tokens / self.seconds

    @property
    def delay_p99(self) -> float:
        """Milliseconds."""
        return sorted(self.delays)[int(len(self.delays) * 0.99)] * 1e3 if self.delays else 0.0


def simulate(load: Load, costs: Costs) -> Outcome:
    """Run one server for some seconds of its own time."""
    return _Simulation(load, costs).run()


class _Simulation:
    """Events on a heap: a token comes, a worker ticks, the stub is free again."""

    def __init__(self, load: Load, costs: Costs) -> None:
        self.load, self.costs = load, costs
        self.outcome = Outcome(load)
        # The same streams each time: the page is made again and compared.
        self._random = random.Random(1)  # noqa: S311
        self._gap = FlushPolicy.of(load.cores, load.workers).interval(load.streams / load.workers)
        self._held: dict[int, list[float]] = {}
        """Times of the tokens a worker keeps, by stream."""
        self._waiting: dict[int, list[float]] = {}
        """Times of those that wait in the stub."""
        self._queue: deque[int] = deque()
        self._stub_free = 0.0
        self._requests: dict[int, int] = {}

    def run(self) -> Outcome:
        """Let it run."""
        events: list[tuple[float, int, int]] = []
        for stream in range(self.load.streams):
            # Streams began at any time.
            self._requests[stream] = self._random.randrange(self.load.tokens)
            heapq.heappush(events, (self._random.random() / self.load.rate, 0, stream))
        for worker in range(self.load.workers):
            heapq.heappush(events, (self._random.random() * (self._gap or 1.0), 1, worker))
        end = _WARM + self.outcome.seconds
        while events and events[0][0] < end:
            now, kind, which = heapq.heappop(events)
            self._serve(now)
            if kind == 0:
                self._token(now, which)
                heapq.heappush(events, (now + 1 / self.load.rate, 0, which))
            elif self._gap:
                for stream in range(which, self.load.streams, self.load.workers):
                    self._release(stream)
                heapq.heappush(events, (now + self._gap, 1, which))
        return self._sum_up()

    def _token(self, now: float, stream: int) -> None:
        self._held.setdefault(stream, []).append(now)
        self._requests[stream] += 1
        place = self._requests[stream] % self.load.tokens
        self.outcome.tokens += now > _WARM
        self.outcome.requests += now > _WARM and place == 0
        if place == 0:
            self._stub_free = max(self._stub_free, now) + self.costs.stub_request / _MILLION
        # The first and the last token of an answer do not wait.
        if not self._gap or place in (0, 1):
            self._release(stream)

    def _release(self, stream: int) -> None:
        if times := self._held.pop(stream, None):
            if stream not in self._waiting:
                self._queue.append(stream)
            self._waiting.setdefault(stream, []).extend(times)

    def _serve(self, now: float) -> None:
        """Let the stub send until now; a response takes it its cost, one after another."""
        while self._queue:
            times = self._waiting[self._queue[0]]
            start = max(self._stub_free, times[-1])
            cost = (self.costs.stub_response + self.costs.stub_token * len(times)) / _MILLION
            if start + cost > now:
                return
            del self._waiting[self._queue.popleft()]
            self._stub_free = start + cost
            if start > _WARM:
                self.outcome.responses += 1
                self.outcome.delays += [self._stub_free - time for time in times]

    def _sum_up(self) -> Outcome:
        done, costs = self.outcome, self.costs
        worker = done.tokens * costs.worker_token + done.requests * costs.worker_request
        stub = done.responses * costs.stub_response + done.tokens * costs.stub_token
        stub += done.requests * costs.stub_request
        server = done.responses * costs.server_response + done.requests * costs.server_request
        for name, value in (("worker", worker), ("stub", stub), ("tritonserver", server)):
            done.busy[name] = value / _MILLION / done.seconds
        return done


_HEAD = (
    "streams",
    "tokens/s each",
    "cores",
    "workers",
    "tokens/s",
    "responses/s",
    "tokens a response",
    "worker front ends, cores",
    "stub, cores",
    "tritonserver, cores",
    "added delay p99, ms",
)
# Loads of docs/scaling.md: this kind of machine, then a machine with 8 GPUs.
_TABLE = (
    *(Load(streams, 100, cores=2) for streams in (1, 16, 64, 128)),
    *(Load(streams, 45) for streams in (16, 64, 128, 256, 512, 1024)),
    *(Load(streams, 45, workers=4) for streams in (1024, 2048)),
)


def row(done: Outcome) -> list[str]:
    """Return a line of the table."""
    return [
        str(done.load.streams),
        f"{done.load.rate:g}",
        str(done.load.cores),
        str(done.load.workers),
        f"{done.tokens_per_second:,.0f}",
        f"{done.responses / done.seconds:,.0f}",
        f"{done.tokens / max(1, done.responses):.1f}",
        f"{done.busy['worker']:.2f} of {done.load.workers}",
        f"{done.busy['stub']:.2f} of 1",
        f"{done.busy['tritonserver']:.2f}",
        f"{done.delay_p99:.0f}",
    ]


def table(loads: tuple[Load, ...] = _TABLE) -> Iterator[str]:
    """Yield the lines of a table of loads, in Markdown."""
    yield f"| {' | '.join(_HEAD)} |"
    yield "| --- " * len(_HEAD) + "|"
    for load in loads:
        yield f"| {' | '.join(row(simulate(load, Costs.measured())))} |"


def main(words: list[str]) -> int:
    """Print a table, or compare prediction and measurement; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, help="requests answered at once")
    parser.add_argument("--rate", type=float, default=45.0, help="tokens/s each (%(default)s)")
    parser.add_argument("--tokens", type=int, default=256, help="of an answer (%(default)s)")
    parser.add_argument("--cores", type=int, default=96, help="default %(default)s")
    parser.add_argument("--workers", type=int, default=1, help="default %(default)s")
    parser.add_argument("--fit", action="store_true", help="measure the costs here; predict; check")
    asked = parser.parse_args(words)
    if asked.fit:
        from benchmark.echo_check import fit_and_check  # noqa: PLC0415  it starts servers

        return fit_and_check()
    loads = _TABLE
    if asked.streams:
        loads = (Load(asked.streams, asked.rate, asked.tokens, asked.cores, asked.workers),)
    sys.stdout.writelines(f"{line}\n" for line in table(loads))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
