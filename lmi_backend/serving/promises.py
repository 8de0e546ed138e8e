"""Keep what requests are promised: when an answer begins, and how fast its tokens follow.

A request that cannot be in time is refused at once. How soon an answer begins is expected from what
this model did lately: how long answers took, and how long the engine read before a first token.
A model measures this from the first promise on. Guarded by the service's lock.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from lmi_backend.errors import LateError
from lmi_backend.serving.admission import DISPLACED

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.generation import Chunk
    from lmi_backend.serving.admission import Admission
    from lmi_backend.serving.request_state import RequestState
    from lmi_backend.serving.stats import RequestStats

_FADES: Final = 0.98
"""What an observation counts after the next one."""
_FEW: Final = 8.0
"""Observations, below which nothing is expected."""
_SURE: Final = 2.5
"""Spreads of the expectation that must fit into the promise: one of a hundred is later."""
_LEAST_SPREAD: Final = 0.05
"""Of what is expected; no clock and no engine is more even."""
_FAR: Final = 6.0
"""Spreads from the line that an observation may be: of a stall, all running answers tell the same.
An engine that stays slower moves the line within some twenty observations."""
_TICK: Final = 0.002
"""Least spread, in seconds: clocks and steps differ by as much."""
_SPREAD_OUT: Final = 0.1
"""Of the mean place: with places closer to it nothing is known of how steep the line is."""
_MOMENT: Final = 0.02
"""Seconds in which all that is seen has the same cause, and counts little more than one."""
_PAUSE: Final = 1.0
"""Seconds after a late answer in which none is tried that is expected late."""
_LEAST_ERROR: Final = 0.2
_MOST_ERROR: Final = 9.0
"""Square of an error in spreads; a larger one was a fault, which tells nothing."""


class Trend:
    """A straight line through what was seen lately; it never falls."""

    def __init__(self) -> None:
        self._n = self._x = self._y = self._xx = self._xy = self._yy = 0.0
        self._at = self._crowd = 0.0

    @property
    def is_settled(self) -> bool:
        return self._n >= _FEW

    def add(self, x: float, y: float, now: float) -> float:
        """Take what was seen; return what it counts."""
        self._crowd = 1 + self._crowd * math.exp((self._at - now) / _MOMENT)
        self._at, weight = now, 1 / self._crowd
        if self.is_settled:
            line = self.line()
            expected = line.at(x)
            far = _FAR * max(line.spread, _LEAST_SPREAD * expected, _TICK)
            y = min(max(y, expected - far), expected + far)
        left = _FADES**weight
        self._n = self._n * left + weight
        self._x = self._x * left + weight * x
        self._y = self._y * left + weight * y
        self._xx = self._xx * left + weight * x * x
        self._xy = self._xy * left + weight * x * y
        self._yy = self._yy * left + weight * y * y
        return weight

    def line(self) -> TrendLine:
        """Return the line. Where all was seen at one place, it is level."""
        mean_x, mean_y = self._x / self._n, self._y / self._n
        variance = self._xx / self._n - mean_x**2
        covariance = self._xy / self._n - mean_x * mean_y
        slope = max(0.0, covariance / (variance + (_SPREAD_OUT * mean_x) ** 2 + 1e-9))
        rest = self._yy / self._n - mean_y**2 - 2 * slope * covariance + slope**2 * variance
        return TrendLine(mean_y - slope * mean_x, slope, math.sqrt(max(0.0, rest)))


class TrendLine(NamedTuple):
    """What is expected."""

    start: float
    slope: float
    spread: float
    """How far from the line the values are, in the mean."""

    def at(self, x: float) -> float:
        return max(0.0, self.start + self.slope * x)


class Ends(NamedTuple):
    """When the answers that run are expected to end."""

    ends: list[float]
    """Seconds from now, in order."""
    seconds: float
    """That an answer takes, in the mean."""
    varies: float
    """Its spread, as a share. Of answers that vary as much as they take, age says nothing."""

    def wait(self, place: int) -> tuple[float, float]:
        """Return the seconds until so many are over, and the spread of these."""
        count = len(self.ends)
        if place <= 0 or not count:
            return 0.0, 0.0
        turn, (rounds, last) = self.seconds / count, divmod(place - 1, count)
        by_age = rounds * self.seconds + self.ends[last]
        wait = by_age + (place * turn - by_age) * self.varies
        return wait, turn * math.sqrt(1 + place * self.varies**2)


@dataclass
class _Sent:
    at: float
    """When its worker had room for it."""
    bytes: int
    """What had to be read from then."""
    is_ahead: bool
    """Whether its worker had no room when it was sent."""
    is_unread: bool = True
    """Whether its first token is still to come."""


class Promises:
    """Refuses requests that cannot be in time; every one, or each that has a promise."""

    def __init__(
        self,
        admission: Admission,
        stats: RequestStats,
        *,
        is_used: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._admission, self._stats, self._clock = admission, stats, clock
        self.is_used = is_used
        self._durations = Trend()
        """Seconds of an answer, by how many run at once."""
        self._firsts, self._queued_firsts = Trend(), Trend()
        """Seconds to the first token from when a worker has room, by the bytes to read until then.
        The second is of requests whose worker had none when they were sent."""
        self._gaps = Trend()
        """Seconds between tokens, by how many run at once."""
        self._gaps_seen = (0.0, 0)
        self._error = 1.0
        """Square of how far off expectations were, in their spreads."""
        self._trials, self._tries_from = 1, 0.0
        """Answers that must run before one that is expected late is refused. It grows with each
        that is in time nevertheless: else what was seen of a fault would refuse all others."""
        self._running: dict[RequestState, _Sent] = {}
        self._unread = 0
        """Bytes of the requests without a first token that run."""

    def check(self, state: RequestState, capacity: int) -> dict[RequestState, str]:
        """Return the waiting requests that would be late if this one came, and must fail.

        They are those of tenants with more waiting. If another one would be late, this is refused.

        Args:
            state: the new request.
            capacity: answers that all workers that are ready generate at once.

        Raises:
            LateError: it is refused.
        """
        self.is_used = True
        if not capacity:
            return {}
        try:
            displaced = self._late_beside(state, capacity)
        except LateError:
            is_full = self._admission.running >= min(self._trials, capacity)
            if is_full or self._clock() < self._tries_from:
                raise
            state.is_trial = True
            return {}
        if self._admission.running >= self._trials:
            self._trials = 1
        return displaced

    def _late_beside(self, state: RequestState, capacity: int) -> dict[RequestState, str]:
        self._check_pace(state, capacity)
        if not (self._durations.is_settled and self._firsts.is_settled):
            return {}
        now, late, firsts = self._clock(), {}, self._firsts.line()
        queued = self._queued_firsts.line() if self._queued_firsts.is_settled else firsts
        ends = self._ends(now, capacity)
        sure, place = _SURE * math.sqrt(self._error), self._admission.running - capacity
        for other in self._admission.order(state):
            place += other.width
            if place <= 0:
                seconds, spread = firsts.at(self._unread + other.size), firsts.spread
            else:
                wait, spread = ends.wait(place)
                seconds = wait + queued.at(self._unread + other.size)
                spread = max(math.hypot(spread, queued.spread), _LEAST_SPREAD * seconds)
                if other is state:
                    state.forecast = seconds, spread
            excess = now + seconds + sure * spread - other.due
            if excess > 0 and (other is state or now + seconds <= other.due):
                late[other] = excess
        if not late:
            return {}
        if all(other is not state and self._admission.has_less(state, other) for other in late):
            return dict.fromkeys(late, DISPLACED.format(bound="no time for both"))
        excess = max(late.values())
        seconds = late.get(state, 0.0) + state.due - now
        raise self._late(f"{seconds * 1e3:.0f} ms to the first token", state, excess)

    def _check_pace(self, state: RequestState, capacity: int) -> None:
        if state.tpot == math.inf or not self._gaps.is_settled:
            return
        running = min(self._admission.running + state.width, capacity)
        gap = self._gaps.line().at(running)
        if gap > state.tpot:
            raise self._late(f"{gap * 1e3:.0f} ms between tokens", state, gap)

    def _late(self, expected: str, state: RequestState, excess: float) -> LateError:
        first, gap = (state.due - state.began) * 1e3, state.tpot * 1e3
        promised = f"{first:.0f} ms to the first token, {gap:.0f} ms between tokens"
        text = f"the answer would be late: about {expected}; promised: {promised}"
        return LateError(text.replace("inf ms", "any time"), math.ceil(excess))

    def broken(self, state: RequestState) -> LateError | None:
        if state.due == math.inf or state.num_sent:
            return None
        seconds = self._firsts.line().at(state.size) if self._firsts.is_settled else 0.0
        if self._clock() + seconds <= state.due:
            return None
        return self._late("too long in the queue", state, seconds)

    def _ends(self, now: float, capacity: int) -> Ends:
        line = self._durations.line()
        seconds = line.at(capacity)
        ends = sorted(
            max(0.0, sent.at + seconds - now)
            for state, sent in self._running.items()
            for _ in range(state.width)
        )
        return Ends(ends, seconds, min(1.0, line.spread / max(seconds, 1e-9)))

    def started(self, state: RequestState, capacity: int) -> None:
        now, excess = self._clock(), self._admission.running + state.width - capacity
        at = now
        if excess > 0 and self._durations.is_settled:
            at += self._ends(now, capacity).wait(excess)[0]
        self._running[state] = _Sent(at, self._unread + state.size, is_ahead=excess > 0)
        self._unread += state.size

    def begun(self, state: RequestState, chunk: Chunk | None = None) -> None:
        """Note that an answer begins, or that its worker is lost."""
        sent = self._running.get(state)
        if sent is None or not sent.is_unread:
            return
        sent.is_unread = False
        self._unread -= state.size
        if chunk is None or (chunk.is_last and chunk.decode_seconds is None):
            return
        first_at = self._clock() - (chunk.decode_seconds or 0.0)
        firsts = self._queued_firsts if sent.is_ahead else self._firsts
        weight = firsts.add(sent.bytes, max(0.0, first_at - sent.at), self._clock())
        if state.forecast is not None:
            seconds, spread = state.forecast
            error = (first_at - state.began - seconds) / spread
            newest, left = min(error**2, _MOST_ERROR), _FADES**weight
            self._error = max(_LEAST_ERROR, self._error * left + newest * (1 - left))
        if first_at > state.due or state.tpot == math.inf:
            self._judge(state, is_late=first_at > state.due)

    def _judge(self, state: RequestState, *, is_late: bool) -> None:
        if is_late:
            self._trials, self._tries_from = 1, self._clock() + _PAUSE
        elif state.is_trial:
            self._trials = max(self._trials, 2 * (self._admission.running + 1))

    def left(self, state: RequestState) -> float | None:
        """Note that a worker has a request no more; return since when it had room for it."""
        self.begun(state)
        sent = self._running.pop(state, None)
        return None if sent is None else sent.at

    def ended(self, state: RequestState) -> None:
        at = self.left(state)
        if at is None or state.error is not None:
            return
        now, running = self._clock(), self._admission.running
        self._durations.add(running, now - at, now)
        if state.tpot < math.inf and state.first_at <= state.due:
            following = max(1.0, state.num_tokens / state.width - 1)
            self._judge(state, is_late=now - state.first_at > following * state.tpot)
        seconds, count = self._stats.token_gaps()
        seen_seconds, seen_count = self._gaps_seen
        if count > seen_count:
            self._gaps_seen = seconds, count
            self._gaps.add(running, (seconds - seen_seconds) / (count - seen_count), now)
