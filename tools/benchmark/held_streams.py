"""Many streams of a known pace at once: how late their tokens are, and who uses the CPU."""

from __future__ import annotations

import statistics
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Final

import psutil

from benchmark.http_client import HttpClient
from benchmark.measured import Answer

_LOOK_SECONDS: Final = 0.25
_FEWEST_SECONDS: Final = 2.0
_FEWEST_EVENTS: Final = 10


@dataclass(frozen=True)
class Pace:
    """What is asked."""

    streams: int
    """At once; each asks for one answer, all of them in the same moment."""
    tokens: int
    """Of an answer."""
    token_seconds: float
    """Between two tokens that the echo engine makes."""
    rounds: int = 1
    """Answers that each stream asks for, one after the other."""


@dataclass(frozen=True)
class Held:
    """What came of it, while all streams ran."""

    streams: int
    asked: float
    """Tokens a second that the engine is to make."""
    came: float
    """Tokens a second that came."""
    answers: int
    seconds: float
    first_ms: Mapping[str, float]
    """To the first event; p50 and p99. All ask in the same moment."""
    gap_ms: Mapping[str, float]
    """Between events of a stream."""
    late_ms: Mapping[str, float]
    """Of events, after their time by the pace of their answer (`lateness`).

    Empty where tokens shared events, whose times are not known.
    """
    cores: Mapping[str, float]
    """In use by class of process."""
    busiest: Mapping[str, float]
    """The one process of each class that uses most, in cores."""
    failure: str = ""
    """Why streams did not come to their end; empty where all did."""

    def line(self) -> str:
        """Return it in a line."""
        if self.failure:
            return f"{self.streams} streams: {self.failure}"
        used = ", ".join(f"{kind} {cores:.2f}" for kind, cores in self.cores.items())
        return (
            f"{self.streams} streams: {self.came:,.0f} of {self.asked:,.0f} tokens/s, first p99 "
            f"{self.first_ms['p99']:,.0f} ms, gap p99 {self.gap_ms['p99']:.0f} ms, late p99 "
            f"{self.late_ms.get('p99', 0):.0f} ms; cores: {used}"
        )

    def values(self) -> dict[str, Any]:
        """Return it as JSON has it, with few digits."""
        return {name: _short(value) for name, value in asdict(self).items()}


def hold(asks: HttpClient, pace: Pace, processes: Sequence[tuple[str, psutil.Process]]) -> Held:
    """Ask, and return what came of it.

    Args:
        asks: the client.
        pace: what it asks for.
        processes: whose CPU is looked at, each with its class.
    """
    with CpuWatch([*processes, ("client", psutil.Process())]) as watch:
        try:
            answers = asks.answers(pace.tokens, pace.streams, pace.streams * pace.rounds)
        except (RuntimeError, OSError, TimeoutError) as error:
            return _broken(pace, f"{type(error).__name__}: {error}"[:300])
    return summed_up(answers, pace, watch)


def _broken(pace: Pace, failure: str) -> Held:
    nothing: dict[str, float] = {}
    asked = pace.streams / pace.token_seconds
    none = (nothing,) * 5
    return Held(pace.streams, asked, 0.0, 0, 0.0, *none, failure=failure)


def summed_up(answers: Sequence[Answer], pace: Pace, watch: CpuWatch) -> Held:
    """Return what the answers to a pace show, of the time in which all streams ran."""
    start, end = window(answers, pace)
    tokens = sum(
        (bisect_right(each.responses, end) - bisect_left(each.responses, start))
        * (pace.tokens / len(each.responses))
        for each in answers
    )
    inside = [
        b - a for each in answers for a, b in pairwise(each.responses) if start <= a and b <= end
    ]
    late = [
        delay
        for each in answers
        if len(each.responses) == pace.tokens
        for delay in lateness([one for one in each.responses if start <= one <= end])
    ]
    return Held(
        streams=pace.streams,
        asked=pace.streams / pace.token_seconds,
        came=tokens / (end - start),
        answers=len(answers),
        seconds=end - start,
        first_ms=_percentiles([each.responses[0] - each.asked for each in answers]),
        gap_ms=_percentiles(inside),
        late_ms=_percentiles(late),
        cores=watch.cores(start, end),
        busiest=watch.busiest(start, end),
    )


def window(answers: Sequence[Answer], pace: Pace) -> tuple[float, float]:
    """Return when all streams ran: from the last first event to the first end.

    Where each asked several times, or that is too short, from the first question to the last end.
    """
    start = max(each.responses[0] for each in answers)
    end = min(each.responses[-1] for each in answers)
    if pace.rounds > 1 or end - start < _FEWEST_SECONDS:
        return min(each.asked for each in answers), max(each.responses[-1] for each in answers)
    return start, end


def lateness(moments: Sequence[float]) -> list[float]:
    """Return by how many seconds each of a stream's events came after its time.

    The engine makes one after the other at a steady pace, which is the line through all moments;
    an event's time is by that pace from the one that came earliest by it.
    """
    if len(moments) < _FEWEST_EVENTS:
        return []
    line = statistics.linear_regression(range(len(moments)), moments)
    beside = [moment - place * line.slope for place, moment in enumerate(moments)]
    return [each - min(beside) for each in beside]


class CpuWatch:
    """Looks at the CPU time of processes four times a second, until the block ends."""

    def __init__(self, processes: Sequence[tuple[str, psutil.Process]]) -> None:
        self._processes = processes
        self._looks: list[tuple[float, list[float]]] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> CpuWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def cores(self, start: float, end: float) -> dict[str, float]:
        """Return how many cores each class used between two moments."""
        used: dict[str, float] = {}
        for (kind, _), cores in zip(self._processes, self._used(start, end), strict=True):
            used[kind] = used.get(kind, 0.0) + cores
        return used

    def busiest(self, start: float, end: float) -> dict[str, float]:
        """Return how many cores that process of each class used which used most."""
        used: dict[str, float] = {}
        for (kind, _), cores in zip(self._processes, self._used(start, end), strict=True):
            used[kind] = max(used.get(kind, 0.0), cores)
        return used

    def _used(self, start: float, end: float) -> list[float]:
        inside = [look for look in self._looks if start <= look[0] <= end]
        looks = inside if len(inside) > 1 else self._looks
        (began, before), (ended, after) = looks[0], looks[-1]
        return [(b - a) / (ended - began) for a, b in zip(before, after, strict=True)]

    def _run(self) -> None:
        is_over = False
        while not is_over:
            self._looks.append((time.monotonic(), [_seconds(each) for _, each in self._processes]))
            is_over = self._is_over.wait(_LOOK_SECONDS)
        self._looks.append((time.monotonic(), [_seconds(each) for _, each in self._processes]))


def _seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    used: float = times.user + times.system
    return used


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return milliseconds; nothing of nothing."""
    if len(seconds) < 2:
        return {}
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {f"p{place}": cuts[place - 1] * 1e3 for place in (50, 99)}


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3 if abs(value) < 10 else 1)
    if isinstance(value, Mapping):
        return {name: _short(each) for name, each in value.items()}
    return value
