"""Whose turn it is."""

import itertools
import random
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from lmi_backend.errors import CancelledError, RequestError, UnavailableError
from lmi_backend.serving.admission import Admission, tenant_key
from lmi_backend.serving.request_state import RequestState
from tests.support.doubles.service_bench import limits_of, state_of
from tests.support.doubles.simulated_engines import BLOCK_TOKENS, SimulatedRequest, Simulation, text

TOKEN = 4
"""Bytes that count as a token of a prompt."""


def make(running: int = 4, waiting: int = 100, **weights: int) -> Admission:
    return Admission(limits_of(running, waiting, tenant_weights=weights))


class Queue:
    """Requests of some tenants, each with a name that says whose it is and which."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.names: dict[int, str] = {}
        self._counts: dict[str, int] = {}

    def request(
        self, tenant: str, width: int = 1, priority: int = 0, size: int = 0
    ) -> RequestState:
        count = self._counts[tenant] = self._counts.get(tenant, 0) + 1
        number = len(self.names) + 1
        self.names[number] = f"{tenant}{count}"
        fields = {"tenant": tenant, "priority": priority, "size": size or width * TOKEN}
        return state_of(number=number, width=width, **fields)

    def enqueue(self, tenant: str, times: int = 1, **what: Any) -> list[RequestState]:
        queued = [self.request(tenant, **what) for _ in range(times)]
        for state in queued:
            self.admission.enqueue(state)
        return queued

    def starts(self, capacity: int = 1 << 20) -> list[str]:
        """Start all that may, and return their names in order."""
        started = []
        while (state := self.admission.next(capacity)) is not None:
            self.admission.started(state)
            started.append(self.names[state.id])
        return started


@pytest.mark.parametrize("weights", [{"a": 3}, {"b": 2}, {"": 9}])
def test_a_tenant_gets_as_much_as_its_weight(weights: Mapping[str, int]) -> None:
    queue = Queue(make(**weights))
    queue.enqueue("a", 40)
    queue.enqueue("b", 40)
    shares = [weights.get(name, 1) for name in "ab"]
    started = Counter(name[0] for name in queue.starts()[: 8 * sum(shares)])
    assert [started[name] for name in "ab"] == pytest.approx([8 * each for each in shares], abs=1)


def test_prompts_count_by_their_tokens() -> None:
    queue = Queue(make())
    queue.enqueue("long", 3, size=4 * TOKEN)
    queue.enqueue("short", 12)
    order = queue.starts()
    # Each of its requests is worth four of the other's.
    places = [order.index(f"long{n}") for n in (1, 2, 3)]
    assert [place - n for n, place in enumerate(places)] == [0, 4, 8]


def test_what_is_generated_counts_as_it_comes() -> None:
    queue = Queue(make())
    talks = queue.request("talks")
    queue.admission.started(talks)
    queue.enqueue("talks", 3)
    queue.enqueue("b", 50)
    talks.num_tokens = 20
    order = queue.starts()
    assert order.index("talks2") == 21
    # What was charged while it ran is not charged again.
    queue.admission.ended(talks)
    queue.enqueue("talks", 1)
    queue.enqueue("b", 1)
    assert queue.starts()[0] == "talks5"


def test_the_engine_says_how_long_a_prompt_is_and_what_was_cached_counts_a_tenth() -> None:
    queue = Queue(make())
    ran = queue.request("cached", size=1000 * TOKEN)
    queue.admission.started(ran)
    queue.enqueue("cached")
    queue.enqueue("b", 200)
    queue.admission.begun(ran, 100, 100)
    assert queue.starts().index("cached2") == 10


def test_what_nobody_else_wanted_is_not_held_against_a_tenant() -> None:
    queue = Queue(make())
    for _ in range(100):
        alone = queue.request("alone")
        queue.admission.started(alone)
        alone.num_tokens = 1000
        queue.admission.ended(alone)
    queue.enqueue("new", 3000)
    queue.enqueue("alone", 2)
    # It has got one answer more than who comes now.
    assert 990 < queue.starts().index("alone101") < 1010


def jain(values: list[float]) -> float:
    return sum(values) ** 2 / (len(values) * sum(value**2 for value in values))


SHAPES = {"chat": (200, 100), "long prompts": (6000, 5), "long answers": (20, 1500), "bulk": (2, 2)}
"""Tokens of prompts and answers, in the mean."""


def test_tenants_of_unlike_shapes_get_as_many_tokens() -> None:
    draw = random.Random(2)
    simulation = Simulation(2, most=8)
    seconds = 200

    def request(tenant: str) -> SimulatedRequest:
        prompt, answer = SHAPES[tenant]
        return SimulatedRequest(
            [text(draw.expovariate(1 / prompt))],
            max(1, round(draw.expovariate(1 / answer))),
            tenant=tenant,
            follows=lambda each: (each.ended, request(tenant)) if each.ended < seconds else None,
        )

    for tenant in SHAPES:
        # Each always has something waiting; bulk sends a hundred times as much as others.
        for _ in range(6000 if tenant == "bulk" else 60):
            simulation.add(draw.random(), request(tenant))
    tokens: Counter[str] = Counter()
    starts: dict[str, list[float]] = {tenant: [] for tenant in SHAPES}
    for each in simulation.run():
        if each.ended < seconds:
            tokens[each.tenant] += len(each.blocks) * BLOCK_TOKENS + each.num_tokens
            starts[each.tenant].append(each.began)
    assert jain([tokens[tenant] for tenant in SHAPES]) >= 0.95
    for began in starts.values():
        began.sort()
        gaps = [later - earlier for earlier, later in pairwise(began)]
        assert max(gaps) < seconds / 4


def test_who_asks_one_after_the_other_has_no_more_turns() -> None:
    queue = Queue(make())
    queue.enqueue("flood", 10)
    started = []
    for _ in range(6):
        queue.enqueue("one")
        state = queue.admission.next(1 << 20)
        assert state is not None
        queue.admission.started(state)
        started.append(queue.names[state.id])
    # While it had nothing waiting it saved up nothing.
    assert started == ["flood1", "one1", "flood2", "one2", "flood3", "one3"]


def test_within_a_tenant_priority_comes_first_as_in_the_engine() -> None:
    queue = Queue(make())
    queue.enqueue("a", 2)
    queue.enqueue("a", priority=-5)
    queue.enqueue("b", priority=9)
    assert queue.starts() == ["a3", "b1", "a1", "a2"]


def test_the_engines_own_queue_is_short() -> None:
    admission = make(running=64)
    queue = Queue(admission)
    queue.enqueue("a", 90)
    assert len(queue.starts(64)) == 64 + 8
    assert admission.waiting == 90 - 72
    assert not admission.is_free(64)


def test_the_rate_counts_the_answers_that_ended_and_no_other() -> None:
    seconds = itertools.count(0, 0.5)
    queue = Queue(Admission(limits_of(16, 100), lambda: float(next(seconds))))
    for _ in range(2):
        done = queue.request("a", width=179)
        queue.admission.started(done)
        queue.admission.ended(done)
        cancelled = queue.request("a", width=1000)
        cancelled.error = CancelledError("its client has left")
        queue.admission.started(cancelled)
        queue.admission.ended(cancelled)
        # Of 179 a second 8.95 end in the 50 ms that a request may take; of 180 it were 9.
        queue.enqueue("a", 50)
        started = queue.starts(16)
        assert len(started) == 16 + 8
        queue = Queue(queue.admission)
        queue.admission.running = queue.admission.waiting = 0
        queue.admission.queued.clear()
        queue.admission.tenants.clear()


def test_a_wide_request_does_not_wait_until_the_engine_is_idle() -> None:
    queue = Queue(make())
    queue.enqueue("a", 2, width=10)
    assert queue.starts(4) == ["a1"]


def test_with_a_free_place_nothing_waits_but_who_comes_later_does_not_overtake() -> None:
    admission = make()
    assert admission.is_free(4)
    Queue(admission).enqueue("a")
    assert not admission.is_free(4)


def test_of_who_has_nothing_open_little_is_remembered() -> None:
    queue = Queue(make())
    queued = [state for n in range(300) for state in queue.enqueue(f"t{n}", 2)]
    for state in queued[::2]:
        queue.admission.withdraw(state)
        queue.admission.withdraw(state)
    assert queue.admission.waiting == 300
    queue.starts()
    assert queue.admission.waiting == 0
    for n in range(20_000):
        state = queue.request(f"u{n}")
        queue.admission.started(state)
        queue.admission.ended(state)
    assert len(queue.admission.tenants) < 4000


def test_a_name_is_kept_short_and_two_long_ones_stay_two() -> None:
    assert tenant_key("a" * 64) == "a" * 64
    one, other = tenant_key("a" * 1_000_000), tenant_key("a" * 999_999 + "b")
    assert one != other
    assert len(one) == len(other) == 64


def test_a_long_name_has_its_weight() -> None:
    gold = "g" * 100
    queue = Queue(make(**{gold: 2}))
    queue.enqueue("a", 3)
    queue.enqueue(tenant_key(gold), 2)
    is_a = [name.startswith("a") for name in queue.starts()]
    assert is_a == [True, False, False, True, True]


def full(**weights: int) -> Queue:
    """Return a queue of 6 places, all of which one tenant has."""
    queue = Queue(make(running=2, waiting=4, **weights))
    for _ in range(2):
        queue.admission.started(queue.request("flood"))
    queue.enqueue("flood", 4)
    return queue


def test_weight_counts_for_places_too() -> None:
    queue = full(flood=4)
    with pytest.raises(UnavailableError):
        queue.admission.displaced_by(queue.request("b"))


def test_a_wide_request_displaces_as_much_as_it_needs_or_nothing() -> None:
    queue = full()
    displaced = queue.admission.displaced_by(queue.request("b", width=2))
    assert [queue.names[state.id] for state in displaced] == ["flood6", "flood5"]
    with pytest.raises(UnavailableError):
        queue.admission.displaced_by(queue.request("b", width=3))
    with pytest.raises(RequestError, match="at most 6"):
        queue.admission.displaced_by(queue.request("b", width=7))
