"""Answers that outlive their model's process: what is asked of the next one, and who waits."""

import asyncio
from typing import Any

import pytest

from lmi_backend.errors import EngineDeadError, EngineError
from lmi_backend.frontend.answer import Answer
from lmi_backend.frontend.outages import Outages
from lmi_backend.generation import Delta, GenerateRequest, HttpChunk, HttpRequest
from lmi_backend.ipc import messages as msg
from lmi_backend.tokenization import pack, unpack
from tests.support.doubles.model_end import Model
from tests.support.run.waiting import HANG_SECONDS


class Endpoint(Model):
    """A model whose answers may resume; what it was sent is in `sent`."""

    def __init__(
        self, outages: Outages, seconds: float = 60.0, limit: int = 2, **info: Any
    ) -> None:
        super().__init__(None, outages, return_seconds=seconds, migration_limit=limit, **info)


def chunk(text: str, token_id: int) -> Delta:
    return Delta(text, 1, ids=pack([token_id]))


async def rest(answer: Answer) -> str:
    return "".join(each.text for each in await answer.read() if isinstance(each, Delta))


async def test_a_stream_goes_on_in_the_next_process_from_its_ids() -> None:
    outages = Outages()
    first = Endpoint(outages)
    (hello,) = first.sent
    assert (hello.protocol, hello.keeps_ids) == (msg.PROTOCOL, True)
    answer = first.connection.submit((GenerateRequest("a"),), "tenant")
    first.say(msg.Output(1, chunk("b", 5)), msg.Output(1, chunk("c", 6)))
    first.die()
    second = Endpoint(outages)
    asked = second.sent[-1]
    assert (asked.id, asked.tenant) == (1, "tenant")
    assert unpack(asked.requests[0].continuation.ids) == [[5], [6]]
    second.say(msg.Output(1, chunk("d", 7)))
    # What came before is still the client's to read, and is not asked for again.
    assert await rest(answer) == "bcd"
    second.die()
    third = Endpoint(outages)
    assert unpack(third.sent[-1].requests[0].continuation.ids) == [[5], [6], [7]]
    third.say(msg.Output(1, chunk("e", 8)))
    assert await rest(answer) == "e"
    # Twice is as often as it may.
    third.die()
    with pytest.raises(EngineDeadError, match=r"its process died; it resumed 2 times before"):
        await rest(answer)


async def test_the_stub_that_goes_on_keeps_what_came_before() -> None:
    outages = Outages()
    first = Endpoint(outages)
    body = HttpRequest("/v1/chat/completions", b'{"stream": true}')
    first.connection.submit(body, "")
    first.say(msg.Output(1, HttpChunk(b'data: {"id": "x"}\n\n', num_tokens=1, ids=pack([5]))))
    first.die()
    second = Endpoint(outages)
    where = second.sent[-1].request.continuation
    assert (unpack(where.ids), where.num_lines, where.head) == ([[5]], 2, b'data: {"id": "x"}\n\n')


@pytest.mark.parametrize("is_failed", [True, False])
async def test_who_leaves_meanwhile_is_not_asked_for(*, is_failed: bool) -> None:
    outages = Outages()
    model = Endpoint(outages)
    answer = model.connection.submit((GenerateRequest("a"),), "")
    model.die()
    if is_failed:
        answer.abort()
        answer.fail(EngineDeadError("the client left"))
    answer.close()
    assert len(Endpoint(outages).sent) == 1


async def test_the_wait_is_bounded_and_ends_with_the_server() -> None:
    outages = Outages()
    model = Endpoint(outages, seconds=0.01)
    late = model.connection.submit((GenerateRequest("a"),), "")
    model.die()
    with pytest.raises(EngineDeadError, match=r"not back within 0 s \(option.migration_timeout\)"):
        await asyncio.wait_for(late.read(), HANG_SECONDS)
    model = Endpoint(outages)
    stopped = model.connection.submit((GenerateRequest("a"),), "")
    model.die()
    outages.close()
    with pytest.raises(EngineDeadError):
        await stopped.read()
    assert len(Endpoint(outages).sent) == 1


async def test_each_wait_has_its_own_time() -> None:
    outages = Outages()
    model = Endpoint(outages, seconds=0.01)
    answer = model.connection.submit((GenerateRequest("a"),), "")
    model.say(msg.Output(1, chunk("b", 5)))
    model.die()
    model = Endpoint(outages, seconds=3600)
    model.say(msg.Output(1, chunk("c", 6)))
    model.die()
    # The time of the first wait is over: this timer is due later, on any machine.
    await asyncio.sleep(0.02)
    model = Endpoint(outages)
    model.say(msg.Output(1, chunk("d", 7)))
    assert await rest(answer) == "bcd"


async def test_who_may_be_the_cause_is_found_by_trying_one_after_the_other() -> None:
    outages = Outages()
    model = Endpoint(outages, limit=9)
    answers = [model.connection.submit((GenerateRequest("a"),), "") for _ in range(5)]
    model.die()
    Endpoint(outages, limit=9).die()
    model = Endpoint(outages, limit=9)
    # Nothing told them apart: one is asked for, and the next when something of it has come.
    assert [each.id for each in model.sent[1:]] == [1]
    model.say(msg.Output(1, chunk("b", 5)))
    assert [each.id for each in model.sent[1:]] == [1, 2]
    # Those that wait for their turn were not in this death; one of them leaves.
    answers[2].close()
    model.die()
    with pytest.raises(EngineDeadError, match="is not resumed"):
        await answers[1].read()
    model = Endpoint(outages, limit=9)
    # What was proved runs on beside it.
    model.say(msg.Output(1, chunk("c", 6)), msg.Failure(2, "engine", "failed"))
    model.say(msg.Output(3, chunk("d", 7)))
    assert [await rest(answers[number]) for number in (0, 4)] == ["bc", "d"]
    with pytest.raises(EngineError, match="failed"):
        await answers[3].read()


async def test_switched_off_nothing_waits() -> None:
    outages = Outages()
    model = Endpoint(outages, seconds=0.0)
    answer = model.connection.submit((GenerateRequest("a"),), "")
    model.die()
    with pytest.raises(EngineDeadError):
        await answer.read()


BODY = HttpRequest("/v1/chat/completions", b'{"model": "a", "stream": true}')


@pytest.mark.parametrize(
    ("work", "after", "problem"),
    [
        (BODY, {"digest": "2"}, "its files, its tokenizer or an option"),
        (BODY, {"adapters": {}}, "adapter a has changed or is not there"),
        (HttpRequest("/v1/completions", b'{"n": NaN}'), {"adapters": {}}, "adapter a has changed"),
        (HttpRequest("/v1/completions", b'{"model": "m"}'), {"adapters": {}}, ""),
        (BODY, {}, ""),
    ],
)
async def test_a_stream_does_not_go_on_with_another_model_of_its_name(
    work: HttpRequest, after: dict[str, Any], problem: str
) -> None:
    before: dict[str, Any] = {"digest": "1", "adapters": {"a": "1", "b": "1"}}
    outages = Outages()
    first = Endpoint(outages, **before)
    begun, new = (first.connection.submit(work, "") for _ in range(2))
    headers = {"content-type": "text/event-stream"}
    first.say(msg.Output(1, HttpChunk(b"data: {}\n\n", False, 200, headers, 1, 3, pack([5]))))
    await begun.read()
    first.die()
    second = Endpoint(outages, **{**before, **after})
    asked = [each for each in second.sent if isinstance(each, msg.Submit | msg.SubmitHttp)]
    # What has no answer yet begins with the model that is there.
    assert len(asked) == (1 if problem else 2)
    assert outages.counts("m")["moved"] == len(asked)
    assert not new.is_over
    if problem:
        with pytest.raises(EngineDeadError, match=f"cannot resume with what is back: .*{problem}"):
            await begun.read()


async def test_one_answer_that_cannot_go_on_does_not_keep_the_others(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    outages = Outages()
    first = Endpoint(outages)
    answers = [first.connection.submit((GenerateRequest(each),), "") for each in "abc"]
    first.die()
    move = Answer.move

    def move_some(answer: Answer, *arguments: Any) -> None:
        if answer is answers[1]:
            raise TypeError("a bug")
        move(answer, *arguments)

    monkeypatch.setattr(Answer, "move", move_some)
    second = Endpoint(outages)
    asked = [each.requests[0].prompt for each in second.sent if isinstance(each, msg.Submit)]
    assert asked == ["a", "c"]
    with pytest.raises(EngineError, match="the log says why"):
        await answers[1].read()
    assert "TypeError: a bug" in caplog.text
