"""Which worker a request is sent to."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.generation import Delta
from lmi_backend.ipc.engine import EngineStats
from lmi_backend.serving.choice import Choice
from lmi_backend.serving.prefixes import prompt_of
from lmi_backend.serving.request_state import RequestState
from tests.support.doubles.service_bench import state_of
from tests.support.doubles.simulated_engines import (
    Conversations,
    Simulation,
    Speed,
    cached_share,
    percentile,
    text,
)


def worker(index: int, **fields: Any) -> Any:
    plain = {"outstanding": 0, "assigned": 0, "is_extra": False, "is_behind": False}
    named = {"index": index, "worker": object(), "stats": EngineStats()}
    return SimpleNamespace(**plain | named | fields)


class Bench:
    """A choice among some workers, which answer when the test says so."""

    def __init__(self, count: int = 4, threshold: int = 4, most: int = 100) -> None:
        self.choice = Choice(threshold, most)
        self.workers = [worker(index) for index in range(count)]

    def send(self, *messages: str, session: str = "", size: int = 0) -> RequestState:
        """Send a request; its messages are as long as their names say."""
        state = state_of()
        pieces = [b"{%b" % (each.encode() * 20) for each in messages]
        state.prompt = prompt_of(pieces, size or sum(map(len, pieces)), session)
        return self.place(state)

    def place(self, state: RequestState) -> RequestState:
        chosen = self.choice.choose(state, self.workers)
        assert chosen is not None
        state.worker = chosen.index
        chosen.outstanding += 1
        chosen.assigned += 1
        return state

    def answer(self, state: RequestState, num_cached: int | None = None) -> int:
        """Answer a request to its end; return its worker."""
        assert state.worker is not None
        self.choice.begun(state, Delta(num_prompt_tokens=100, num_cached_tokens=num_cached))
        self.workers[state.worker].outstanding -= 1
        return state.worker

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.choice.num_hits, self.choice.num_lost, self.choice.num_moves


@pytest.mark.parametrize(
    ("fields", "chosen"),
    [
        ([{"outstanding": 1}, {"assigned": 9}], 1),
        ([{"assigned": 2}, {"assigned": 1}], 1),
        ([{"is_extra": True}, {"assigned": 9}], 1),
        ([{"is_extra": True}, {"outstanding": 1}], 0),
        ([{}, {}], 0),
        ([{"is_behind": True}, {"outstanding": 9}], 1),
    ],
)
@pytest.mark.parametrize("threshold", [0, 100])
def test_a_prompt_that_nobody_knows_goes_to_the_least_busy(
    fields: list[dict[str, Any]], chosen: int, threshold: int
) -> None:
    workers: list[Any] = [worker(index, **each) for index, each in enumerate(fields)]
    state = state_of()
    if threshold:
        state.prompt = prompt_of([b"{" * 100], 100)
    assert Choice(threshold, 100).choose(state, workers) is workers[chosen]


def test_a_command_goes_to_its_worker_or_to_none() -> None:
    bench, state = Bench(2), state_of(only=1)
    assert bench.choice.choose(state, bench.workers) is bench.workers[1]
    assert bench.choice.choose(state, bench.workers[:1]) is None
    assert bench.choice.choose(state, []) is None


def test_a_conversation_stays_with_its_worker() -> None:
    bench = Bench()
    messages: list[str] = []
    chosen = []
    for turn in "hello", "go on", "again", "enough":
        messages += [f"user {turn}", f"assistant {turn}"]
        chosen.append(bench.answer(bench.send(*messages[:-1])))
        # Others use the other workers meanwhile.
        bench.answer(bench.send(f"someone else {turn}"))
    assert len(set(chosen)) == 1
    assert bench.counts == (3, 0, 0)


def test_requests_of_a_session_go_to_one_worker_whatever_they_say() -> None:
    bench = Bench()
    chosen = [bench.answer(bench.send(str(number), session="s")) for number in range(8)]
    assert len(set(chosen)) == 1
    others = [bench.answer(bench.send(str(number))) for number in range(8)]
    assert {*chosen, *others} == {0, 1, 2, 3}


def test_a_session_is_one_worker_s_at_once_too_up_to_the_threshold() -> None:
    bench = Bench(2, threshold=4)
    chosen = [bench.send(str(number), session="s").worker for number in range(5)]
    assert chosen == [0, 0, 0, 0, 1]


def test_a_session_decides_where_prompts_do_not() -> None:
    bench = Bench()
    own = bench.send("system prompt of all", session="s")
    for _ in range(3):
        bench.answer(bench.send("another", "system prompt of all"))
    bench.answer(own)
    assert bench.answer(bench.send("system prompt of all", "new", session="s")) == own.worker


def test_the_worker_with_the_prompt_may_have_more_to_do_but_not_much_more() -> None:
    bench = Bench(2, threshold=4)
    long = "a long text that all begin with" * 20
    chosen = [bench.send(long, str(number)).worker for number in range(6)]
    assert chosen == [0, 0, 0, 0, 1, 1]
    assert bench.counts == (4, 0, 1)


def test_a_short_prompt_is_not_worth_a_queue_where_answers_slow_each_other() -> None:
    for most, chosen in (3, [0, 1, 0, 1]), (100, [0, 0, 0, 0]):
        bench = Bench(2, most=most)
        assert [bench.send("short text", str(each)).worker for each in range(4)] == chosen


def test_what_a_worker_has_to_read_counts_until_it_begins_to_answer() -> None:
    bench = Bench(2)
    busy = bench.send("a document", size=50_000)
    assert [bench.send(str(number)).worker for number in range(3)] == [1, 1, 1]
    bench.choice.begun(busy, Delta())
    assert bench.send("then").worker == 0


def test_one_that_makes_all_it_can_gets_no_more_while_another_can() -> None:
    bench = Bench(2, threshold=100, most=2)
    long = "a long text that all begin with" * 20
    assert [bench.send(long).worker for _ in range(6)] == [0, 0, 1, 1, 0, 1]


def test_what_an_engine_has_dropped_is_forgotten_with_what_is_older() -> None:
    bench = Bench(2)
    older, prompt = "an older text" * 20, "a long text that all begin with" * 20
    for each in (older, prompt, "a text in between" * 20):
        bench.workers[1].assigned += 9
        assert bench.answer(bench.send(each), num_cached=0) == 0
    assert bench.answer(bench.send(prompt), num_cached=96) == 0
    assert bench.counts == (1, 0, 0)
    assert bench.answer(bench.send(prompt), num_cached=32) == 0
    assert bench.counts == (2, 1, 0)
    # It has read this one again.
    bench.workers[0].assigned += 99
    assert bench.answer(bench.send(prompt), num_cached=96) == 0
    assert bench.answer(bench.send(older)) == 1


@pytest.mark.parametrize(
    ("num_cached", "kv_block_size"), [(None, 16), (75, 16), (54, 16), (0, 128)]
)
def test_an_engine_that_says_nothing_or_enough_loses_nothing(
    num_cached: int | None, kv_block_size: int
) -> None:
    """Of 100 tokens no block of 128 is there."""
    bench = Bench(2)
    for each in bench.workers:
        each.stats = EngineStats(kv_block_size=kv_block_size)
    for _ in range(4):
        bench.answer(bench.send("a long text that all begin with" * 20), num_cached)
    assert bench.counts == (3, 0, 0)


def test_a_request_that_loses_its_worker_is_no_longer_read_there() -> None:
    bench = Bench(2)
    state = bench.send("a document", size=50_000)
    bench.choice.begun(state)
    bench.workers[0].outstanding -= 1
    assert [bench.send(str(number)).worker for number in range(2)] == [1, 0]


# Simulated engines: what they find in their caches, and when answers begin.


def conversations(workers: int, threshold: int, seed: int, **shape: Any) -> Simulation:
    """Return a simulation that has run; all have a system prompt of 800 tokens."""
    plain = {"count": 8, "turns": 6, "user": 100, "answer": 100, "every": 0.3}
    sim = Simulation(workers, threshold, kv_blocks=shape.pop("kv_blocks", 1 << 20))
    load = Conversations(system=text(800), **plain | shape)
    for at, request in load.starts(random.Random(seed)):
        sim.add(at, request)
    sim.run()
    return sim


@pytest.mark.parametrize("count", [2, 8])
@pytest.mark.parametrize(
    "shape",
    [{}, {"every": 1e-3}, {"count": 40, "every": 0.05}, {"own_system": 400, "count": 30}],
    ids=["calm", "at once", "many", "tenants"],
)
def test_several_workers_find_what_one_would(count: int, shape: dict[str, Any]) -> None:
    alone, several = (
        cached_share(conversations(each, 8, count, **shape).ended) for each in (1, count)
    )
    assert several >= 0.95 * alone
    assert cached_share(conversations(count, 0, count, **shape).ended) < several


@pytest.mark.parametrize("kv_blocks", [32, 200])
def test_a_cache_that_is_too_small_is_found_out(kv_blocks: int) -> None:
    shape = {"count": 40, "every": 0.05, "kv_blocks": kv_blocks}
    with_prefixes = conversations(4, 8, 1, **shape)
    assert with_prefixes.choice.num_lost > 0
    without = conversations(4, 0, 1, **shape)
    assert cached_share(with_prefixes.ended) >= 0.95 * cached_share(without.ended)
    first = [
        percentile([each.began - each.came for each in sim.ended], 0.99)
        for sim in (with_prefixes, without)
    ]
    assert first[0] <= 1.25 * first[1]


def first_events(seed: int, threshold: int, every: float, pause: float = 1.0) -> Simulation:
    """Return a simulation of a load of any kind that has run; the seed decides all else."""
    draw = random.Random(seed)
    turns = draw.choice((1, 3, 6))
    load = Conversations(
        count=150 // turns,
        turns=turns,
        system=text(draw.uniform(9, 900)),
        user=draw.uniform(20, 600),
        answer=draw.uniform(5, 200),
        every=every * turns,
        pause=pause,
        own_system=draw.choice((0, 100, 800)),
    )
    count, most, kv_blocks = draw.choice((2, 4, 8)), draw.choice((8, 32)), draw.choice((500, 9_000))
    speed = Speed(0.01, draw.choice((2e-5, 5e-4)), draw.choice((2e-5, 2e-4)))
    sim = Simulation(count, threshold, most, kv_blocks, speed)
    for at, request in load.starts(draw):
        sim.add(at, request)
    sim.run()
    return sim


def test_answers_begin_as_soon_as_by_load_alone() -> None:
    """At 80 % of what the workers can do; a thousand loads were run by hand."""
    ratios = []
    for seed in range(12):
        full = first_events(seed, 0, every=1e-6, pause=1e-9).ended
        every = max(each.ended for each in full) / len(full) / 0.8
        by_load, by_prefix = (
            percentile([each.began - each.came for each in sim.ended], 0.99)
            for sim in (first_events(seed, threshold, every) for threshold in (0, 8))
        )
        ratios.append(by_prefix / by_load)
    assert sorted(ratios)[len(ratios) // 2] <= 1.0
    assert max(ratios) < 1.5
