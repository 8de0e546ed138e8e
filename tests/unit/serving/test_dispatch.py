"""Requests that wait for their turn: when they start, and that each ends once whatever happens."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmi_backend.errors import LmiError, RequestError, UnavailableError
from lmi_backend.generation import GenerateRequest, HttpChunk, HttpRequest
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.engine import EngineStats
from lmi_backend.ipc.frames import Frame
from lmi_backend.pool.rank_group import WorkerStats
from lmi_backend.resume.progress import Progress
from lmi_backend.serving.metrics import gauges_and_counters
from lmi_backend.serving.new_requests import Sender
from lmi_backend.serving.service import Service
from tests.support.doubles.scripted_workers import ScriptedWorkers
from tests.support.doubles.service_bench import CAPACITY, RUNNING, Bench, Sink, limits_of
from tests.support.run.waiting import HANG_SECONDS, wait_for


def test_with_a_free_place_a_request_is_sent_by_its_own_thread() -> None:
    bench = Bench()
    for _ in range(RUNNING):
        bench.submit("a")
    # No other thread runs here.
    assert bench.workers.order == [1, 2, 3]
    bench.submit("a")
    assert (bench.workers.order, bench.waiting) == ([1, 2, 3], 1)


def test_tenants_take_turns() -> None:
    bench = Bench()
    for tenant in "aaaaaaaabb":
        bench.submit(tenant)
    for place in range(10):
        bench.answer(bench.workers.order[place])
    # The first has had three answers when the other comes.
    assert bench.workers.order == [1, 2, 3, 9, 10, 4, 5, 6, 7, 8]
    assert [sink.ends for sink in bench.sinks] == [["answered"]] * 10


@pytest.mark.parametrize("is_set", [False, True])
def test_users_take_turns_where_an_option_says_so(is_set: bool) -> None:
    bench = Bench(tenant_from_user=is_set)
    for user in "aaaaaaab":
        body = b'{"messages": [], "user": "%s"}' % user.encode()
        bench.service.submit(HttpRequest("/v1/chat/completions", body), Sink())
    bench.service.on_messages([msg.Output(1, HttpChunk(b"{}", is_last=True))])
    bench.settle()
    assert bench.workers.order[-1] == (8 if is_set else 4)


def test_what_is_no_work_for_the_engine_does_not_wait() -> None:
    bench = Bench()
    bench.fill(9)
    bench.service.submit(HttpRequest("/v1/models", b""), Sink())
    bench.service.submit(HttpRequest("/v1/chat/completions", b"{}"), Sink())
    assert bench.workers.order == [1, 2, 3, 10]


def test_a_body_takes_as_many_places_as_it_asks_answers() -> None:
    bench = Bench(waiting=3)
    body = b'{"prompt": ["a", "b"], "n": %d}'
    sink = Sink()
    bench.service.submit(HttpRequest("/v1/completions", body % 2), sink)
    with pytest.raises(UnavailableError, match="the queue is full"):
        bench.service.submit(HttpRequest("/v1/completions", body % 1), Sink())
    with pytest.raises(RequestError, match="requests 6 answers at once; accepted: at most 5"):
        bench.service.submit(HttpRequest("/v1/completions", body % 3), Sink())
    assert bench.workers.outstanding == [4]
    # Its one answer ends it.
    bench.service.on_messages([msg.Output(1, HttpChunk(b"{}", is_last=True))])
    bench.settle()
    assert sink.ends == ["answered"]
    assert bench.workers.outstanding == [0]


def test_who_waits_is_counted_as_waiting() -> None:
    bench = Bench()
    for width in (1, 1, 1, 3, 4):
        bench.submit(width=width)
    now = bench.service.snapshot()
    assert (now.open, now.waiting) == (5, 7)
    now.workers[:] = [
        WorkerStats(EngineStats(waiting=n), assigned=0, deaths=0, is_ready=True) for n in (1, 0, 0)
    ]
    series = gauges_and_counters("m", now)
    name = "lmi_engine_requests_waiting"
    assert [series[name, (("model", "m"), ("worker", w))] for w in "012"] == [1 + 3, 2, 2]


def test_who_leaves_while_it_waits_ends_at_once() -> None:
    bench = Bench()
    bench.fill(5)
    bench.service.cancel("4")
    bench.settle()
    assert bench.sinks[3].ends == ["StoppedError"]
    assert bench.waiting == 1
    bench.answer(1)
    assert bench.workers.order == [1, 2, 3, 5]


def test_who_leaves_between_its_turn_and_the_worker_costs_the_engine_nothing() -> None:
    bench = Bench()
    bench.fill(5)
    bench.workers.answer(1)
    bench.send_answers()
    # It has a worker, which has not heard of it: this abort comes before the request.
    bench.service.cancel("4")
    bench.send_released()
    bench.settle()
    assert bench.sinks[3].ends == ["StoppedError"]
    # Its place went to the next.
    assert bench.open() == [2, 3, 5]


def test_a_dead_workers_places_go_to_the_others() -> None:
    bench = Bench(count=2)
    bench.fill(8)
    first = dict(bench.workers.requests[0])
    bench.die()
    assert [bench.sinks[number - 1].ends for number in first] == [["EngineDeadError"]] * len(first)
    bench.answer(*bench.open())
    assert [sink.ends for sink in bench.sinks[-2:]] == [[], []]
    assert set(bench.open()) == {7, 8}
    # One worker has half the places.
    bench.fill(5)
    assert len(bench.open()) == RUNNING


@pytest.mark.parametrize("is_noticed", [False, True], ids=["not noticed yet", "noticed"])
def test_what_a_dead_worker_was_not_sent_goes_to_another(is_noticed: bool) -> None:
    bench = Bench(count=2)
    bench.fill(6)
    dead = next(index for index in (0, 1) if 1 in bench.workers.requests[index])
    bench.workers.answer(1)
    bench.send_answers()
    # Request 6 has its place, and was not sent yet.
    if is_noticed:
        bench.workers.die(dead)
    bench.workers.is_alive[dead] = False
    bench.send_released()
    bench.settle()
    assert bench.sinks[5].ends == []
    assert bench.workers.requests[1 - dead][6] == 1
    bench.answer(6)
    assert bench.sinks[5].ends == ["answered"]


@pytest.mark.parametrize("is_sent", [False, True], ids=["to be sent", "sent and forgotten"])
def test_an_answer_that_is_complete_when_its_worker_dies_is_an_answer(is_sent: bool) -> None:
    """All of it comes, and the worker dies, before who sent the request has the lock again."""
    bench = Bench(migration_timeout=None)
    bench.fill(RUNNING + 2)

    def be_fast(worker: Any) -> None:
        send = worker.send_frame

        def send_frame(frame: Frame) -> None:
            send(frame)
            bench.workers.answer(RUNNING + 1)
            bench.workers.die(0)
            if is_sent:
                bench.send_answers()

        worker.send_frame = send_frame

    bench.workers.claims.append(be_fast)
    bench.workers.answer(1)
    bench.settle()
    bench.revive()
    assert bench.sinks[RUNNING].ends == ["answered"]
    while open_ := bench.open():
        bench.answer(open_[0])
    # What had to wait was sent, and all places were given back.
    assert [sink.ends for sink in bench.sinks] == [["answered"]] * len(bench.sinks)
    assert bench.workers.outstanding == [0]
    assert bench.service.dispatch.admission.running == 0


def _bug(*_: object, **__: object) -> Any:
    raise TypeError("a bug")


@pytest.mark.parametrize("place", ["claim", "send_frame"])
def test_a_request_that_cannot_be_brought_to_a_worker_ends_alone(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.fill(RUNNING + 2)
    fault = {"claim": _bug, "send_frame": lambda worker: setattr(worker, "send_frame", _bug)}
    bench.workers.claims.append(fault[place])
    bench.answer(1)
    assert bench.sinks[RUNNING].ends == ["EngineError"]
    assert "request '4': the request cannot be brought to a worker" in caplog.text
    assert "TypeError: a bug" in caplog.text
    while open_ := bench.open():
        bench.answer(open_[0])
    others = [sink.ends for sink in bench.sinks if sink is not bench.sinks[RUNNING]]
    assert others == [["answered"]] * (RUNNING + 1)
    assert bench.workers.outstanding == [0]


def test_a_request_that_cannot_be_packed_for_its_next_worker_ends_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(migration_timeout=None)
    bench.fill(2)
    bad = bench.service.states[1].progress
    pack = Progress.message
    monkeypatch.setattr(
        Progress, "message", lambda each, number: _bug() if each is bad else pack(each, number)
    )
    bench.workers.die(0)
    bench.revive()
    assert bench.sinks[0].ends == ["EngineError"]
    bench.answer(*bench.open())
    assert bench.sinks[1].ends == ["answered"]
    assert bench.workers.outstanding == [0]
    assert bench.service.snapshot().open == 0


def test_a_request_that_could_not_be_taken_leaves_no_place_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    bench.fill()
    with monkeypatch.context() as patched:
        patched.setattr(bench.workers, "note_queue", _bug)
        with pytest.raises(TypeError):
            bench.submit()
    assert (bench.waiting, bench.service.snapshot().open) == (0, RUNNING)
    bench.submit()
    bench.answer(1)
    assert bench.workers.order == [1, 2, 3, 5]


def test_what_no_worker_can_be_sent_ends_with_an_error() -> None:
    bench = Bench()
    bench.fill(RUNNING + 1)
    bench.workers.answer(1)
    bench.send_answers()
    bench.die()
    assert [sink.ends for sink in bench.sinks] == [["answered"]] + [["EngineDeadError"]] * RUNNING
    assert bench.workers.outstanding == [0]


def test_without_a_worker_nobody_waits() -> None:
    bench = Bench()
    bench.fill(9)
    bench.die()
    assert [sink.ends for sink in bench.sinks[:3]] == [["EngineDeadError"]] * 3
    assert [sink.ends for sink in bench.sinks[3:]] == [["UnavailableError"]] * 6
    with pytest.raises(UnavailableError, match="no worker is ready"):
        bench.submit()
    bench.workers.is_alive[0] = True
    bench.submit()
    bench.answer(11)
    assert bench.sinks[-1].ends == ["answered"]


def test_a_full_queue_is_shared() -> None:
    bench = Bench(waiting=9)
    for _ in range(11):
        bench.submit("flood")
    with pytest.raises(UnavailableError, match="the queue is full"):
        bench.submit("flood")
    bench.submit("b")
    bench.settle()
    assert bench.sinks[10].ends == ["UnavailableError"]
    assert bench.waiting == 8
    bench.answer(1)
    bench.answer(2)
    assert bench.workers.order == [1, 2, 3, 13, 4]


def test_a_worker_that_does_not_read_does_not_stop_the_senders() -> None:
    may_read = threading.Event()
    workers = ScriptedWorkers(CAPACITY)
    service = Service(workers, limits_of(CAPACITY, 9))  # type: ignore[arg-type]
    service.start()
    sinks = [Sink() for _ in range(RUNNING + 2)]
    for sink in sinks:
        service.submit((GenerateRequest("a"),), sink)

    def be_stuck(worker: Any) -> None:
        send = worker.send_frame
        worker.send_frame = lambda frame: may_read.wait(HANG_SECONDS) and send(frame)

    workers.claims += [be_stuck] * 2
    for number in (1, 2, 3):
        workers.answer(number)
    wait_for(lambda: all(sink.ends for sink in sinks[:3]))
    may_read.set()
    wait_for(lambda: workers.order == [1, 2, 3, 4, 5])
    service.close()


@pytest.fixture
def busy() -> Iterator[Bench]:
    """Return a bench whose threads run, with one request that waits."""
    bench = Bench()
    bench.service.start()
    bench.fill()
    yield bench
    bench.service.close()


def test_the_time_in_the_queue_counts(busy: Bench) -> None:
    sink = Sink()
    busy.service.submit((GenerateRequest("a"),), sink, seconds=0.0)
    wait_for(lambda: sink.ends == ["DeadlineError"])
    assert busy.waiting == 0


def test_a_client_is_asked_while_it_waits(busy: Bench) -> None:
    sink = busy.submit()
    sink.has_gone = True
    wait_for(lambda: sink.ends == ["CancelledError"])
    assert busy.waiting == 0


def test_a_drain_lets_the_queue_run_dry(busy: Bench) -> None:
    waiting = busy.submit()
    draining = threading.Thread(target=busy.service.drain, args=(60.0,))
    draining.start()
    wait_for(lambda: not busy.service.health().is_ready)
    for number in (1, 2, 3, 4):
        wait_for(lambda: number in busy.workers.order)  # noqa: B023  it is over before the next
        busy.workers.answer(number)
    draining.join(HANG_SECONDS)
    assert waiting.ends == ["answered"]


def test_a_drain_ends_what_still_waits(busy: Bench) -> None:
    waiting = busy.submit()
    assert busy.service.drain(0.0) == RUNNING + 1
    assert waiting.ends == ["StoppingError"]
    assert busy.waiting == 0


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.sampled_from("abc"), st.integers(1, 5)),
        st.tuples(st.just("answer"), st.integers(0, 99), st.none()),
        st.tuples(st.just("cancel"), st.integers(0, 99), st.none()),
        st.tuples(st.just("die"), st.integers(0, 1), st.none()),
        st.tuples(st.just("revive"), st.integers(0, 1), st.none()),
        st.tuples(st.sampled_from(("send_answers", "send_released")), st.none(), st.none()),
    ),
    max_size=80,
)


def _step(bench: Bench, what: str, which: object, width: object) -> None:
    match what, which, width:
        case "submit", str(tenant), int(count):
            try:
                bench.submit(tenant, count)
            except LmiError as error:
                bench.sinks[-1].fail(error)
        case "answer", int(place), _ if open_ := bench.open():
            bench.workers.answer(open_[place % len(open_)])
        case "cancel", int(place), _ if bench.sinks:
            bench.service.cancel(str(place % len(bench.sinks) + 1))
        case "die", int(index), _ if bench.workers.is_alive[index]:
            bench.workers.die(index)
        case "revive", int(index), _:
            bench.workers.is_alive[index] = True
        case (("send_answers" | "send_released"), _, _):
            getattr(bench, what)()


@settings(max_examples=300)
@given(STEPS)
def test_each_request_ends_once_and_gives_its_place_back(
    steps: list[tuple[str, object, object]],
) -> None:
    bench = Bench(count=2, waiting=8)
    admission = bench.service.dispatch.admission
    for step in steps:
        _step(bench, *step)
        assert admission.running + admission.waiting <= CAPACITY * 2 + 8
        assert all(len(sink.ends) <= 1 for sink in bench.sinks)
    bench.workers.is_alive = [True, True]
    bench.settle()
    while open_ := bench.open():
        bench.answer(open_[0])
    assert [len(sink.ends) for sink in bench.sinks] == [1] * len(bench.sinks)
    assert (admission.running, admission.waiting, len(admission.queued)) == (0, 0, 0)
    assert bench.workers.outstanding == [0, 0]
    assert bench.service.snapshot().open == 0


def test_workers_learn_how_many_requests_wait_and_why_one_was_refused() -> None:
    bench = Bench(count=2, waiting=2)
    bench.workers.is_alive[1], bench.workers.num_unwanted = False, 1
    bench.fill()
    assert bench.workers.queue_notes == []
    bench.submit()
    # What a second worker would run does not make the queue longer while there is none.
    with pytest.raises(UnavailableError, match=r"2 requests run .* and 2 wait"):
        bench.submit()
    (held, refused) = bench.workers.queue_notes
    assert held == (1, "")
    assert (refused[0], refused[1][:17]) == (1, "the queue is full")


def test_requests_that_wait_start_when_one_more_worker_is_ready() -> None:
    bench = Bench(count=2)
    bench.workers.is_alive[1], bench.workers.num_unwanted = False, 1
    bench.fill(RUNNING + 2)
    assert (len(bench.workers.order), bench.waiting) == (RUNNING, 2)
    bench.workers.is_alive[1], bench.workers.num_unwanted = True, 0
    bench.service.on_ready()
    bench.send_released()
    assert (len(bench.workers.order), bench.waiting) == (RUNNING + 2, 0)


# Several workers that know prompts.

LONG = "a text that others begin with " * 20


def sent_to(bench: Bench, prompt: str = LONG, session: str = "") -> int:
    """Send a request, answer it, and return its worker."""
    number = len(bench.workers.order) + 1
    bench.service.submit((GenerateRequest(prompt),), Sink(), Sender(session=session))
    (index,) = (place for place, each in enumerate(bench.workers.requests) if number in each)
    bench.answer(number)
    return index


def test_a_prompt_goes_to_the_worker_that_has_read_it() -> None:
    bench = Bench(count=3, capacity=8, concurrency_threshold=4)
    assert [sent_to(bench, f"{LONG}{number}") for number in range(4)] == [0] * 4
    assert [sent_to(bench, "another", session="s") for _ in range(3)] == [1] * 3
    now = bench.service.snapshot()
    assert (now.prefix_hits, now.prefix_lost, now.prefix_moves) == (3, 0, 0)
    series = gauges_and_counters("m", now)
    assert series["lmi_prefix_hits_total", (("model", "m"),)] == 3


def test_a_worker_that_was_replaced_has_read_nothing() -> None:
    bench = Bench(count=3, capacity=8, concurrency_threshold=4)
    assert [sent_to(bench), sent_to(bench)] == [0, 0]
    bench.workers.die(0)
    bench.workers.revive(0)
    assert [sent_to(bench), sent_to(bench)] == [1, 1]
    bench.service.submit(HttpRequest("/reset_prefix_cache", b""), Sink())
    for index in range(3):
        bench.workers.answer(bench.workers.order[index - 3])
    bench.settle()
    assert sent_to(bench) == 2


def test_without_it_prompts_do_not_choose() -> None:
    bench = Bench(count=3, capacity=8)
    assert [sent_to(bench, LONG, "s") for _ in range(3)] == [0, 1, 2]
    assert bench.service.snapshot().prefix_hits == 0


def test_a_request_that_waited_or_lost_its_worker_goes_to_the_one_that_has_its_prompt() -> None:
    bench = Bench(count=2, migration_timeout=None, concurrency_threshold=4)
    assert sent_to(bench) == 0
    bench.fill(6)
    waits = bench.submit(prompt=LONG)
    for number in list(bench.workers.requests[1])[:1] + list(bench.workers.requests[0])[:2]:
        bench.answer(number)
    assert 8 in bench.workers.requests[0]
    bench.die()
    while open_ := bench.open():
        bench.answer(open_[0])
    assert waits.ends == ["answered"]
    load = bench.service.dispatch.choice.loads
    assert [each.unread for each in load.values()] == [0, 0]
