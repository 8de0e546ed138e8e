"""One target at each concurrency: throughput, times, and who used the CPU."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import psutil

from benchmark.measured import Measured
from benchmark.perf_analyzer import Analyzer
from benchmark.servers import Running
from benchmark.targets import Target

_MICROSECONDS = 1e6
_FEWEST = 2
_FEWEST_TOKENS = 256
"""Of a stream, in one measurement."""


@dataclass(frozen=True)
class Settings:
    analyzer: Analyzer
    tokens: int
    concurrencies: list[int]
    seconds: float


@dataclass(frozen=True)
class Sample:
    target: str
    concurrency: int
    requests: int
    tokens_per_second: float
    requests_per_second: float
    first_ms: dict[str, float]
    """Milliseconds to the first response; p50, p95, p99."""
    gap_ms: dict[str, float]
    """Milliseconds between responses of a stream."""
    token_ms: dict[str, float]
    """Milliseconds a token, after the first response: a mean for each stream."""
    responses_per_request: float
    cpu_us_per_token: dict[str, float] = field(default_factory=dict)
    """Microseconds by class of process; an engine's count its busy waiting."""
    memory_mib: dict[str, float] = field(default_factory=dict)
    client_us_per_token: float = 0.0
    """Microseconds of CPU of who asked."""
    start_seconds: float = 0.0
    """From the start of its processes until it answered."""

    @property
    def overhead(self) -> float:
        """CPU per token of all that is not the engine core."""
        return sum(v for kind, v in self.cpu_us_per_token.items() if kind != "engine")

    def line(self) -> str:
        return (
            f"{self.target:22s} c={self.concurrency:<4d} {self.tokens_per_second:7.0f} tokens/s  "
            f"first {self.first_ms['p50']:6.1f} ms  gap p99 {self.gap_ms['p99']:6.1f} ms  "
            f"{self.responses_per_request:4.1f} events an answer  "
            f"CPU beside the engine {self.overhead:5.1f} us/token"
        )


def measure(name: str, target: Target, settings: Settings) -> Iterator[Sample]:
    """Start a target and yield a sample for each concurrency."""
    began = time.monotonic()
    with target(settings.analyzer) as running:
        start = time.monotonic() - began
        for concurrency in settings.concurrencies:
            yield replace(_sample(name, running, concurrency, settings), start_seconds=start)


def _sample(name: str, running: Running, concurrency: int, settings: Settings) -> Sample:
    # A short run warms the server, and says how many requests one of the wanted length has.
    probe = running.asks.run(settings.tokens, concurrency, max(_FEWEST, concurrency))
    rate = probe.requests / probe.seconds
    # Of long answers one for each stream has as many events.
    answers = concurrency * max(1, _FEWEST_TOKENS // settings.tokens)
    requests = max(answers, round(rate * settings.seconds))
    before, _ = _processes(running)
    client = _own_seconds()
    measured = running.asks.run(settings.tokens, concurrency, requests)
    client = _own_seconds() - client
    after, memory = _processes(running)
    tokens = measured.requests * settings.tokens
    return Sample(
        target=name,
        concurrency=concurrency,
        requests=measured.requests,
        tokens_per_second=tokens / measured.seconds,
        requests_per_second=measured.requests / measured.seconds,
        first_ms=_percentiles(measured.first),
        gap_ms=_percentiles(measured.gaps),
        token_ms=_percentiles([span / max(1, settings.tokens - 1) for span in measured.spans]),
        responses_per_request=_responses(measured),
        cpu_us_per_token={
            kind: (after[kind] - before[kind]) / tokens * _MICROSECONDS for kind in after
        },
        memory_mib=dict(memory),
        client_us_per_token=client / tokens * _MICROSECONDS,
    )


def _own_seconds() -> float:
    """Return the CPU seconds of this process, and of what it started and saw end."""
    return sum(os.times()[:4])


def _responses(measured: Measured) -> float:
    return 1 + len(measured.gaps) / measured.requests


def _percentiles(seconds: list[float]) -> dict[str, float]:
    if len(seconds) < 2:
        return dict.fromkeys(("p50", "p95", "p99"), seconds[0] * 1e3 if seconds else 0.0)
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {f"p{place}": cuts[place - 1] * 1e3 for place in (50, 95, 99)}


def _processes(running: Running) -> tuple[Counter[str], Counter[str]]:
    """Return CPU seconds and resident MiB by class of process."""
    seconds: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    for kind, process in processes_of(running):
        with contextlib.suppress(psutil.Error):
            times, resident = process.cpu_times(), process.memory_info().rss
            seconds[kind] += times.user + times.system
            memory[kind] += resident / 2**20
    return seconds, memory


def processes_of(running: Running) -> Iterator[tuple[str, psutil.Process]]:
    """Yield each process of a target that is counted, with its class."""
    if not running.pid:
        return
    root = psutil.Process(running.pid)
    for process in (root, *root.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            if kind := running.kind(process.cmdline()):
                yield kind, process
