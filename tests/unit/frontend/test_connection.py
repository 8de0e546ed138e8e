"""All answers of a model come on one connection: what one of them does ends no other.

Large requests have a connection of their own: nothing that is small waits for them.
"""

import contextlib
from typing import Any

import pytest

from lmi_backend.errors import EngineError, HttpError, RequestError
from lmi_backend.frontend.answer import Answer, Unread
from lmi_backend.generation import Delta, GenerateRequest, HttpChunk, HttpRequest, Sampling
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.events import append_event
from lmi_backend.tokenization import pack
from tests.support.doubles.model_end import Model


class Client:
    """What takes chunks to a client; that of a bad one has closed its connection."""

    def __init__(self, *, is_bad: bool) -> None:
        self._is_bad = is_bad
        self.taken: list[Any] = []

    def take(self, data: Any) -> bool:
        if self._is_bad:
            raise RuntimeError("unable to perform operation on <TCPTransport closed=True>")
        self.taken.append(data)
        return True

    def pass_event(self, data: bytes, num_tokens: int, now: float) -> bool:
        assert (num_tokens, now > 0) == (1, True)
        return self.take(data)

    def pass_delta(self, delta: Delta, now: float) -> bool:
        assert (delta, now > 0) == (DELTA, True)
        return self.take(delta)


def _wait(answer: Answer, client: Client) -> Any:
    """Let a client wait for the next chunk of its answer, as long as the result is kept."""
    reading = answer.read()
    reading.send(None)
    answer.forward = client
    return reading


DELTA = Delta("a", 1, ids=pack([5]))


@pytest.mark.parametrize("kind", ["events", "deltas", "bodies", "texts"])
async def test_a_client_that_cannot_be_written_to_fails_alone(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = Model()
    is_body = kind in ("events", "bodies")
    work: Any = HttpRequest("/v1/completions", b"") if is_body else (GenerateRequest("a"),)
    clients = [Client(is_bad=number == 1) for number in range(3)]
    answers = [model.submit(work) for _ in clients]
    pairs = list(zip(answers, clients, strict=True))
    waiting = [_wait(answer, client) for answer, client in pairs]
    messages: list[Any] = []
    for _ in range(2):
        for answer in answers:
            if kind == "events":
                event = HttpChunk(b"data: 1\n\n", num_tokens=1, ids=pack([5]))
                append_event(messages, answer.request_id, event)
            elif kind == "deltas":
                append_event(messages, answer.request_id, DELTA)
            elif kind == "bodies":
                messages.append(msg.Output(answer.request_id, HttpChunk(b"a")))
            else:
                messages.append(msg.Output(answer.request_id, Delta("a", 1)))
    model.say(*messages)
    assert [len(client.taken) for client in clients] == [2, 0, 2]
    assert [answer.is_over for answer in answers] == [False, True, False]
    assert model.aborted() == [answers[1].request_id]
    with pytest.raises(EngineError, match="could not be sent on"):
        await answers[1].read()
    # Said once, with its trace.
    (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert record.exc_info
    assert not model.lost
    for each in waiting:
        each.close()


async def test_a_message_that_fails_does_not_end_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = Model()
    answer = model.submit()
    model.say(model.welcome("bad"), msg.Output(answer.request_id, Delta("a", 1)))
    assert "a message of model bad failed" in caplog.text
    assert len(await answer.read()) == 1
    assert not model.lost


async def test_all_unread_answers_together_are_bounded() -> None:
    text = Delta("x" * 100, 1)
    unread = Unread(limit=8 * text.memory)
    model = Model(unread)
    answers = [model.submit() for _ in range(3)]
    for answer, times in zip(answers, (1, 5, 3), strict=True):
        for _ in range(times):
            model.say(msg.Output(answer.request_id, text))
    # The one that holds most has ended; what the others hold is theirs.
    assert model.aborted() == [answers[1].request_id]
    with pytest.raises(EngineError, match="does not read"):
        await answers[1].read()
    assert [len(await answers[number].read()) for number in (0, 2)] == [1, 3]
    assert unread.answers.size == 0


async def test_the_key_that_holds_most_loses_an_answer_first() -> None:
    text = Delta("x" * 100, 1)
    model = Model(Unread(limit=8 * text.memory))
    many = [model.submit(tenant="many") for _ in range(5)]
    few = model.submit(tenant="few")
    for answer in (*many, few, few, few, many[0]):
        model.say(msg.Output(answer.request_id, text))
    assert model.aborted() == [many[0].request_id]
    assert len(await few.read()) == 3


@pytest.mark.parametrize("reads", ["its client takes bytes", "it is read", ""])
async def test_only_an_answer_whose_client_takes_nothing_ends(
    monkeypatch: pytest.MonkeyPatch, reads: str
) -> None:
    now, unsent = [1000.0], [1 << 20]
    monkeypatch.setattr("lmi_backend.frontend.answer.time.monotonic", lambda: now[0])
    model = Model()
    answer = model.submit()
    answer.unsent = lambda: unsent[0]
    for _ in range(60):
        model.say(msg.Output(answer.request_id, Delta("x" * (1 << 20), 1)))
        now[0] += 20
        if reads == "its client takes bytes":
            unsent[0] -= 1
        elif reads:
            await answer.read()
    assert model.aborted() == ([] if reads else [answer.request_id])


async def test_what_a_client_leaves_behind_is_not_held() -> None:
    unread = Unread()
    model = Model(unread)
    answer = model.submit()
    model.say(msg.Output(answer.request_id, Delta("x" * 100, 1)))
    assert unread.answers.size
    answer.close()
    assert unread.answers.size == 0


@pytest.mark.parametrize(
    "value", [2**64, -(2**63) - 1, "\ud800", [[[[]]]] * 3, {"a": {1: 2}}, object()]
)
def test_what_cannot_be_sent_is_refused_and_the_connection_stays(value: Any) -> None:
    model = Model()
    with contextlib.suppress(HttpError):
        model.connection.manage({"requestType": "LIST_ADAPTERS", "x": value})
    odd: Any = value
    for request in (GenerateRequest(odd), GenerateRequest("a", adapter=odd)):
        with pytest.raises(HttpError) as refused:
            model.connection.submit((request,), "")
        assert refused.value.status == 400
    assert model.connection.num_open == len(model.sent) - 1


def test_a_prompt_that_no_tokens_can_have_is_refused_before_it_is_sent() -> None:
    model = Model(max_model_len=100, longest_token=10)
    model.submit((GenerateRequest("a" * 1000),))
    cut = Sampling(truncate_prompt_tokens=5)
    model.submit((GenerateRequest("a" * 1001, cut),))
    sent = len(model.socket.sent)
    with pytest.raises(RequestError, match="prompt has 1001 characters; accepted: at most 1000"):
        model.submit((GenerateRequest("a"), GenerateRequest("a" * 1001)))
    assert len(model.socket.sent) == sent
