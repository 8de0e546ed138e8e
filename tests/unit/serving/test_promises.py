"""Requests to which something is promised are answered in time, or refused at once."""

import math
import random
from collections.abc import Iterator
from itertools import pairwise
from statistics import mean
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.errors import LateError
from lmi_backend.generation import GenerateRequest
from lmi_backend.serving.admission import Admission
from lmi_backend.serving.new_requests import Sender
from lmi_backend.serving.promises import Promises, Trend
from lmi_backend.serving.request_state import RequestState
from lmi_backend.serving.stats import RequestStats
from tests.support.doubles.service_bench import Bench, Sink, limits_of, state_of
from tests.support.doubles.simulated_engines import SimulatedRequest, Simulation, Speed, text

ANSWER, STEP, MOST = 60, 0.025, 16
LEARNS = 1000
"""Requests after which enough was seen."""


def load(draw: random.Random, count: int, rate: float, burst: int) -> Iterator[tuple[float, Any]]:
    """Yield when each request comes, and the tokens of its prompt and its answer."""
    at, left = 0.0, 0
    for _ in range(count):
        if not left:
            at, left = at + draw.expovariate(rate / burst), draw.randint(1, 2 * burst - 1)
        left -= 1
        yield at, (draw.expovariate(1 / 300), round(ANSWER * draw.uniform(0.8, 1.2)))


def run(workers: int, requests: list[Any], ttft: int, *, refuses: bool) -> list[SimulatedRequest]:
    simulation = Simulation(workers, most=MOST, refuses=refuses, speed=Speed(step=STEP))
    made = []
    for at, (prompt, answer) in requests:
        made.append(SimulatedRequest([text(prompt)], answer, promise=(ttft, 0)))
        simulation.add(at, made[-1])
    simulation.run()
    return made[LEARNS:]


def is_in_time(request: SimulatedRequest, ttft: int) -> bool:
    return (request.began - request.came) * 1e3 <= ttft


@pytest.mark.parametrize(
    ("workers", "overload", "ttft", "burst"), [(1, 1.3, 1000, 20), (4, 2.0, 3000, 1)]
)
def test_what_is_accepted_is_in_time_and_what_is_refused_would_not_be(
    workers: int, overload: float, ttft: int, burst: int
) -> None:
    rate = overload * workers * MOST / (ANSWER * (STEP + 0.003))
    requests = list(load(random.Random(7), 3000, rate, burst))
    pairs = list(
        zip(
            run(workers, requests, ttft, refuses=True),
            run(workers, requests, ttft, refuses=False),
            strict=True,
        )
    )
    accepted = [each for each, _ in pairs if not each.is_refused]
    refused = [ungated for each, ungated in pairs if each.is_refused]
    assert sum(is_in_time(each, ttft) for each in accepted) >= 0.99 * len(accepted)
    assert sum(is_in_time(each, ttft) for each in refused) <= 0.02 * len(refused)
    # The machine is not left idle for it.
    assert len(accepted) >= sum(is_in_time(each, ttft) for _, each in pairs)


def test_a_machine_with_room_refuses_nothing() -> None:
    requests = list(load(random.Random(1), 2000, 0.6 * MOST / (ANSWER * STEP), 1))
    assert not any(each.is_refused for each in run(1, requests, 2000, refuses=True))


class Gate:
    """Promises of one worker with two places, whose answers take ten seconds."""

    def __init__(self, **limits: Any) -> None:
        self.now = 1000.0
        self.limits = limits_of(2, 1000, **limits)
        self.admission, self.stats = Admission(self.limits), RequestStats()
        self.promises = Promises(self.admission, self.stats, is_used=True, clock=lambda: self.now)
        self._count = 0

    def request(self, ttft: int = 0, tpot: int = 0, tenant: str = "") -> RequestState:
        self._count += 1
        state = state_of(number=self._count, tenant=tenant, size=40, began=self.now)
        state.promise(ttft, tpot, self.limits.requests, math.inf)
        return state

    def start(self, state: RequestState) -> RequestState:
        self.promises.started(state, 2)
        self.admission.started(state)
        return state

    def answer(self, state: RequestState, *, seconds: float = 10.0) -> None:
        self.now += 0.1
        self.promises.begun(state, SimpleNamespace(is_last=False, decode_seconds=None))  # type: ignore[arg-type]
        self.now += seconds - 0.1
        state.num_tokens = 100
        self.stats.passed({(self.now - seconds, 100): 1}, self.now)
        self.admission.ended(state)
        self.promises.ended(state)

    def learn(self) -> None:
        for _ in range(20):
            self.answer(self.start(self.request()))

    def fill(self, *tenants: str, ttft: int = 0) -> list[RequestState]:
        for _ in range(2):
            self.start(self.request())
        waiting = [self.request(ttft, tenant=each) for each in tenants]
        for state in waiting:
            self.admission.enqueue(state)
        return waiting


FAST = Speed(0.003, 0.00016, 0.00002)


@pytest.mark.parametrize(
    ("speed", "most", "rate", "promise", "stalls", "end"),
    [
        pytest.param(Speed(STEP), MOST, 5, (1500, 0), [4.0], 30, id="all answers stall once"),
        pytest.param(FAST, 64, 40, (400, 60), [1.0, 0.5], 30, id="twice, of a fast engine"),
        pytest.param(Speed(STEP), MOST, 7, (600, 80), [0.2] * 100, 60, id="none is in time"),
    ],
)
def test_a_fault_that_is_over_refuses_nothing(
    speed: Speed,
    most: int,
    rate: float,
    promise: tuple[int, int],
    stalls: list[float],
    end: float,
) -> None:
    simulation = Simulation(1, most=most, speed=speed)
    worker, draw, left = simulation.workers[0], random.Random(1), list(stalls)
    begin_step = worker.begin_step
    worker.begin_step = lambda: (  # type: ignore[method-assign]
        begin_step() + (left.pop() if left and simulation.now > 20 else 0.0)
    )
    at, made = 0.0, []
    while at < 80:
        at += draw.expovariate(rate)
        made.append(SimulatedRequest([text(100)], ANSWER, promise=promise))
        simulation.add(at, made[-1])
    simulation.run()
    assert not left
    before, after = (
        mean(each.is_refused for each in made if begin < each.came < begin + 20)
        for begin in (0, end)
    )
    assert after <= before + 0.05


def test_one_that_must_wait_longer_is_refused_with_the_time_to_wait() -> None:
    gate = Gate()
    gate.learn()
    gate.fill()
    gate.promises.check(gate.request(30_000), 2)
    with pytest.raises(LateError, match=r"promised: 2000 ms to the first token") as refused:
        gate.promises.check(gate.request(2000), 2)
    assert refused.value.seconds >= 8


def test_nothing_is_refused_before_anything_is_known_nor_where_nothing_runs() -> None:
    gate = Gate()
    gate.fill()
    assert gate.promises.check(gate.request(1), 2) == {}
    idle = Gate()
    idle.learn()
    assert idle.promises.check(idle.request(1), 2) == {}


def test_tokens_that_would_come_too_slowly_are_refused() -> None:
    gate = Gate()
    gate.learn()
    gate.start(gate.request())
    gate.promises.check(gate.request(tpot=200), 2)
    with pytest.raises(LateError, match=r"about 100 ms between tokens; promised: .* 50 ms"):
        gate.promises.check(gate.request(tpot=50), 2)


def test_where_nothing_runs_what_is_expected_late_is_tried_and_not_at_once_again() -> None:
    gate = Gate()
    gate.learn()
    for _ in range(2):
        late = gate.request(tpot=50)
        assert gate.promises.check(late, 2) == {}
        gate.answer(gate.start(late))
        with pytest.raises(LateError):
            gate.promises.check(gate.request(tpot=50), 2)
        gate.now += 1
    for _ in range(2):
        fast = gate.request(tpot=50)
        gate.promises.check(fast, 2)
        gate.answer(gate.start(fast), seconds=2)
        # Beside one more, now that one was in time.
        beside = gate.start(gate.request())
        assert gate.promises.check(gate.request(tpot=50), 2) == {}
        gate.answer(beside)


def test_another_tenant_does_not_pay_for_who_has_filled_the_time() -> None:
    gate = Gate()
    gate.learn()
    waiting = gate.fill(*"aaaa", ttft=40_000)
    with pytest.raises(LateError):
        gate.promises.check(gate.request(40_000, tenant="a"), 2)
    displaced = gate.promises.check(gate.request(30_000, tenant="b"), 2)
    assert list(displaced) == waiting[-1:]


def test_what_waits_is_in_the_order_of_what_is_promised() -> None:
    gate = Gate()
    waiting = [gate.request(ttft) for ttft in (0, 9000, 3000)]
    for state in waiting:
        gate.admission.enqueue(state)
    started = [gate.admission.next(100) for _ in waiting]
    assert started == [waiting[2], waiting[1], waiting[0]]


def test_one_that_has_waited_too_long_fails_when_its_turn_comes() -> None:
    gate = Gate()
    state = gate.request(2000)
    assert gate.promises.broken(state) is None
    gate.now += 3
    assert isinstance(gate.promises.broken(state), LateError)
    # One that resumes has kept its promise before.
    state.num_sent = 1
    assert gate.promises.broken(state) is None


def test_a_clients_own_time_limit_is_a_promise_too() -> None:
    gate = Gate()
    state = gate.request()
    state.promise(0, 0, gate.limits.requests, 3.0)
    assert state.due == gate.now + 3


def test_options_promise_to_all() -> None:
    gate = Gate(ttft_ms=700, tpot_ms=40)
    state = gate.request()
    assert (round(state.due - gate.now, 3), state.tpot) == (0.7, 0.04)
    assert round(gate.request(ttft=200).due - gate.now, 3) == 0.2


def test_a_service_asks_for_each_request_with_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise LateError("too late", 12)

    bench = Bench()
    monkeypatch.setattr(bench.service.dispatch.promises, "check", refuse)
    sink, work = Sink(), (GenerateRequest("a"),)
    for sender, seconds in ((Sender(promise=(5, 0)), math.inf), (Sender(), 3.0)):
        with pytest.raises(LateError):
            bench.service.submit(work, sink, sender, seconds)
    assert (bench.open(), bench.service.snapshot().open, sink.ends) == ([], 0, [])
    bench.service.submit(work, sink)
    assert bench.open() == [3]


def test_a_trend_follows_what_was_seen_and_is_level_where_that_was_one_place() -> None:
    trend = Trend()
    for place in range(100):
        trend.add(place % 10, 5 + 2 * (place % 10), place)
    assert trend.line().at(20) == pytest.approx(45, rel=0.05)
    level = Trend()
    for now, value in enumerate((1.0, 3.0) * 20):
        level.add(64, value, now)
    assert level.line().at(10) == pytest.approx(2, rel=0.05)
    assert level.line().spread == pytest.approx(1, rel=0.05)
    values = [trend.line().at(place) for place in range(-10, 10)]
    assert all(0 <= one <= other for one, other in pairwise(values))
