"""Requests that outlive their workers: which resume, where, and how often."""

import json
import math
import sys
import time
from typing import Any

import pytest

from lmi_backend.clients.responses import MOST
from lmi_backend.engine_config import Identity
from lmi_backend.generation import (
    Continuation,
    Delta,
    GenerateRequest,
    HttpChunk,
    HttpRequest,
    Sampling,
)
from lmi_backend.ipc import messages as msg
from lmi_backend.resume.progress import Progress, resumed
from lmi_backend.resume.resumption import Resumption
from lmi_backend.tokenization import pack, unpack
from tests.support.doubles.service_bench import Bench, Sink


def bench_of(count: int = 1, **limits: Any) -> Bench:
    return Bench(count, capacity=8, **{"migration_timeout": None, **limits})


def say(bench: Bench, number: int, text: str, token_id: int) -> None:
    bench.workers.say(number, text, pack([token_id]))
    bench.send_answers()


def test_a_stream_goes_on_with_another_worker_from_its_ids() -> None:
    bench = bench_of(2)
    sink = bench.submit()
    say(bench, 1, "a", 5)
    say(bench, 1, "b", 6)
    bench.die()
    (number,) = bench.workers.requests[1]
    request = bench.workers.sent[number].requests[0]
    assert unpack(request.continuation.ids) == [[5], [6]]
    # What the dead worker had said is late; nothing finds the request by its old id.
    say(bench, 1, "x", 7)
    say(bench, number, "c", 7)
    bench.die(1)
    bench.revive()
    (number,) = bench.workers.requests[0]
    assert unpack(bench.workers.sent[number].requests[0].continuation.ids) == [[5], [6], [7]]
    bench.answer(number)
    assert (sink.text, sink.ends) == ("abca", ["answered"])
    assert bench.workers.outstanding == [0, 0]
    now = bench.service.snapshot()
    assert (now.open, now.moved, now.repeated_tokens) == (0, 2, 2 + 3)


@pytest.mark.parametrize("is_other_there", [False, True], ids=["started again", "another worker"])
@pytest.mark.parametrize(
    ("found", "adapter", "problem"),
    [
        (Identity(digest="2", adapters={"a": "1"}), "", "its files, its tokenizer"),
        (Identity(digest="1", adapters={"a": "2"}), "a", "adapter a has changed"),
        (Identity(digest="1"), "a", "adapter a has changed or is not there"),
        (Identity(digest="1", adapters={"a": "2"}), "", ""),
    ],
)
def test_a_stream_ends_where_the_next_worker_has_another_model_or_adapter(
    found: Identity, adapter: str, problem: str, is_other_there: bool
) -> None:
    bench = bench_of(2)
    bench.workers.identities = [Identity(digest="1", adapters={"a": "1"}), found]
    begun, new = Sink(), Sink()
    bench.workers.is_alive[1] = False
    for sink in (begun, new):
        bench.service.submit((GenerateRequest("x", adapter=adapter),), sink)
    say(bench, 1, "b", 5)
    if is_other_there:
        bench.revive(1)
    bench.die()
    if not is_other_there:
        bench.revive(1)
    # What has no answer yet begins with the model that is there.
    assert len(bench.open()) == (1 if problem else 2)
    bench.answer(*bench.open())
    assert new.ends == ["answered"]
    assert begun.ends == (["EngineDeadError"] if problem else ["answered"])
    assert all(problem in error for error in begun.errors)
    assert bench.workers.outstanding == [0, 0]
    assert bench.service.snapshot().open == 0


def test_what_the_first_worker_had_cached_is_handed_on() -> None:
    request = msg.Submit(1, (GenerateRequest("p"),), "")
    for before, cached in ((None, 3), (Continuation(b"", num_cached_tokens=5), 5)):
        progress = Progress(resumed(request, before), 1)
        for number in (3, 9):
            progress.add(Delta("a", 1, ids=pack([1]), num_cached_tokens=number))
            progress.is_acknowledged = False
        (work,) = progress.message(2).requests  # type: ignore[union-attr]
        assert work.continuation is not None
        assert work.continuation.num_cached_tokens == cached


def test_a_request_that_has_sent_nothing_is_asked_again_whatever_it_wants() -> None:
    bench = bench_of()
    sinks = [bench.submit(width=3), Sink()]
    body = HttpRequest("/v1/chat/completions", b'{"n": 2}')
    bench.service.submit(body, sinks[1])
    bench.die()
    assert bench.waiting == 5
    bench.revive()
    plain, chat = (bench.workers.sent[number] for number in bench.open())
    assert plain.requests == (GenerateRequest("a", n=3),)
    assert chat.request == body
    bench.answer(plain.id)
    bench.service.on_messages([msg.Output(chat.id, HttpChunk(b"{}", is_last=True))])
    bench.settle()
    assert [sink.ends for sink in sinks] == [["answered"]] * 2


def test_what_cannot_go_on_ends_as_if_nothing_could() -> None:
    """Of several answers, without ids, of users' code; and anything with a timeout of 0."""
    several, unknown, off = bench_of(2), bench_of(2), bench_of(2, migration_timeout=0.0)
    sinks = [several.submit(width=2), unknown.submit(), off.submit(), Sink()]
    several.workers.say(1, "a", pack([1]))
    unknown.workers.say(1, "a", b"")
    unknown.workers.say(1, "a", pack([1]))
    for bench in (several, unknown, off):
        bench.die()
    code = bench_of(2)
    code.service.submit(HttpRequest("/invocations", b""), sinks[3])
    code.die()
    assert [sink.errors for sink in sinks] == [["it died"]] * 4


def test_requests_that_come_while_no_worker_is_ready_wait_for_one() -> None:
    bench = bench_of()
    bench.die()
    sink = bench.submit()
    assert (bench.workers.order, bench.waiting, sink.ends) == ([], 1, [])
    bench.revive()
    bench.answer(1)
    assert (sink.ends, bench.service.snapshot().held) == (["answered"], 1)


def test_no_request_waits_longer_than_it_may() -> None:
    bench = bench_of(migration_timeout=1.5)
    lost = bench.submit()
    bench.die()
    new = bench.submit()
    states = bench.service.open_states()
    poller = bench.service.cancellation
    for now in (time.monotonic() + 1, time.monotonic() + 2):
        for state in states:
            poller.must_be_checked(state, now)
        bench.settle()
    late = "no worker was ready in time (option.migration_timeout)"
    assert [lost.errors, new.errors] == [[f"it died; {late}"], [late]]
    assert bench.service.snapshot().given_up == 2


def test_a_request_goes_on_only_so_often() -> None:
    bench = bench_of(migration_limit=2)
    sink = bench.submit()
    for count in range(3):
        say(bench, bench.open()[0], "a", count)
        bench.die()
        bench.revive()
    assert sink.errors == ["it died; it resumed 2 times before (option.migration_limit)"]
    assert sink.text == "aaa"


def test_the_request_that_ends_each_worker_ends_alone() -> None:
    bench = bench_of()
    poison, other = bench.submit(), bench.submit()
    say(bench, 2, "a", 1)
    bench.die()
    bench.revive()
    # Both have brought nothing now, but the other was not under suspicion before.
    bench.die()
    bench.revive()
    message = "it died; it was in each of 2 deaths of a worker, and is not resumed"
    assert (poison.errors, other.errors) == ([message], [])
    bench.answer(*bench.open())
    assert other.ends == ["answered"]


def test_who_may_be_the_cause_is_found_by_trying_one_after_the_other() -> None:
    bench = bench_of()
    sinks = [bench.submit() for _ in range(4)]
    for _ in range(2):
        bench.die()
        bench.revive()
    # Nothing told them apart: one is sent, and the next when it has brought something.
    assert len(bench.open()) == 1
    say(bench, bench.open()[0], "a", 1)
    bench.settle()
    assert len(bench.open()) == 2
    bench.die()
    bench.revive()
    assert [bool(sink.errors) for sink in sinks] == [False, True, False, False]
    while bench.open():
        for number in bench.open():
            bench.answer(number)
    assert [sink.ends for sink in sinks[::2]] == [["answered"]] * 2
    assert sinks[3].ends == ["answered"]


def test_what_is_kept_is_bounded_and_costs_less_than_a_token() -> None:
    """1,000 streams of 4,000 tokens."""
    message = msg.Submit(1, (GenerateRequest("a"),))
    kept = [Progress(message, 1) for _ in range(1000)]
    for progress in kept:
        for _ in range(8):
            progress.add(Delta("a", 500, ids=pack(range(500))))
    # Four bytes a token, and what a bytearray has in reserve.
    assert sum(each.size for each in kept) == 1000 * 4000 * 4
    assert sum(sys.getsizeof(each.ids) for each in kept) < 1000 * 4000 * 4 * 1.2


def test_how_long_a_request_may_wait_follows_from_what_a_start_takes() -> None:
    by_itself, chosen = (Resumption[Any]("a worker", each, 3) for each in (None, 10.0))
    now = time.monotonic()
    assert now + 75 <= by_itself.wait_until(lambda: 20) < now + 76
    assert (by_itself.wait_until(lambda: math.inf), chosen.wait_until(lambda: 20)) == (0, 0)
    assert now + 10 <= chosen.wait_until(lambda: 5) < now + 11


def test_a_request_that_another_stub_began_goes_on_from_all_its_ids() -> None:
    where = Continuation(pack([5]), num_lines=2, head=b"data: 5", cumulative_logprob=-1.0)
    body = HttpRequest("/v1/chat/completions", b"{}", continuation=where)
    handed = HttpChunk(b"data: 6\n\n", num_tokens=1, ids=pack([6]))
    progress = Progress(msg.SubmitHttp(1, body), 1, hands_on=True)
    progress.add(handed)
    # Its client keeps them too.
    assert unpack(handed.ids) == [[6]]
    again = progress.message(2)
    assert isinstance(again, msg.SubmitHttp)
    assert again.request.continuation == Continuation(
        pack([5]) + pack([6]), num_lines=4, head=b"data: 5", cumulative_logprob=-1.0
    )


def test_a_response_resumes_with_its_names_and_also_before_its_first_token() -> None:
    body = HttpRequest("/v1/responses", b"{}")
    progress = Progress(msg.SubmitHttp(1, body), 1)
    progress.add(HttpChunk(b'data: {"response":{"id":"resp_1","created_at":17}}\n\n'))
    assert progress.can_continue
    progress.pass_event(b'data: {"item":{"id":"msg_1"}}\n\n', pack([6]))
    again = progress.message(2)
    assert isinstance(again, msg.SubmitHttp)
    where = again.request.continuation
    assert where is not None
    assert (where.num_lines, unpack(where.ids)) == (4, [[6]])
    assert where.names == b'"resp_1"\n"created_at":17\n"msg_1"'
    # The process after the next one needs them too.
    following = Progress(again, 1)
    following.add(HttpChunk(b'data: {"item_id":"msg_1","call_id":"call_1"}\n\n'))
    handed = following.message(3)
    assert isinstance(handed, msg.SubmitHttp)
    assert handed.request.continuation is not None
    assert handed.request.continuation.names == where.names + b'\n"call_1"'
    # What could be named so often is not kept, and does not resume.
    for number in range(MOST):
        following.add(HttpChunk(f'data: {{"id":"{number}"}}\n\n'.encode()))
    assert not following.can_continue


def test_a_response_whose_tokens_are_not_known_does_not_resume() -> None:
    progress = Progress(msg.SubmitHttp(1, HttpRequest("/v1/responses", b"{}")), 1)
    progress.add(HttpChunk(b"data: {}\n\n", num_tokens=1))
    assert not progress.can_continue


PULLS = {"kv_transfer_params": {"do_remote_prefill": True, "remote_block_ids": [1, 2]}}
KEEPS = {"kv_transfer_params": {"do_remote_prefill": False, "remote_block_ids": [1, 2]}}


@pytest.mark.parametrize("begins", [False, True])
def test_the_next_worker_computes_the_prompt_that_the_first_one_pulled(begins: bool) -> None:
    """The blocks may be another request's by then, also where nothing was answered yet."""
    schema = {"properties": PULLS}
    sampling = Sampling(extra={"extra_args": PULLS, "structured_outputs": {"json": schema}})
    message = msg.Submit(1, (GenerateRequest("a", sampling),))
    progress = Progress(message, 1)
    if begins:
        progress.add(Delta("a", num_tokens=1, ids=pack([7])))
    (request,) = progress.message(2).requests  # type: ignore[union-attr]
    same = {"structured_outputs": {"json": schema}}
    assert request.sampling.extra == {"extra_args": KEEPS, **same}
    assert message.requests[0].sampling.extra == {"extra_args": PULLS, **same}


SCHEMA = {"properties": {"do_remote_prefill": {"type": "boolean"}, **PULLS}}
OTHERS = {
    "prompt": json.dumps(PULLS),
    "messages": [{"content": [PULLS]}],
    "tools": [{"function": {"parameters": SCHEMA}}],
    "structured_outputs": {"json": SCHEMA},
    "do_remote_prefill": True,
}
"""Places where the name is a client's own."""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (json.dumps(PULLS), json.dumps(KEEPS)),
        (json.dumps(OTHERS), json.dumps(OTHERS)),
        (json.dumps({**OTHERS, **PULLS}), json.dumps({**OTHERS, **KEEPS})),
        (json.dumps({"vllm_xargs": PULLS}), json.dumps({"vllm_xargs": KEEPS})),
        (
            json.dumps({"sampling_params": {"extra_args": PULLS}}),
            json.dumps({"sampling_params": {"extra_args": KEEPS}}),
        ),
        (
            '{"n":NaN, "a":"\\ud800", "kv_transfer_params" : {"do_remote_prefill"\n:1}}',
            '{"n": NaN, "a": "\\ud800", "kv_transfer_params": {"do_remote_prefill": false}}',
        ),
        ('{"do_remote_prefill":', '{"do_remote_prefill":'),
        ('["do_remote_prefill"]', '["do_remote_prefill"]'),
    ],
)
def test_a_body_pulls_no_blocks_at_its_next_worker(body: str, expected: str) -> None:
    call = HttpRequest("/v1/completions", body.encode())
    message = Progress(msg.SubmitHttp(1, call), 1).message(2)
    assert isinstance(message, msg.SubmitHttp)
    assert message.request.body.decode() == expected
