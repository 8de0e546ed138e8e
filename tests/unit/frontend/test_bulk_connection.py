"""Large requests have a connection of their own: nothing that is small waits for them."""

from typing import Any

import pytest

from lmi_backend.engine_config import Context, ModelInfo
from lmi_backend.errors import RequestError
from lmi_backend.frontend.answer import Answer
from lmi_backend.frontend.connection import ModelConnection
from lmi_backend.generation import GenerateRequest, HttpChunk, HttpRequest, Sampling
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import FrameDecoder, encode

BODY = b"a" * 300_000
LARGE = HttpRequest("/v1/completions", BODY)


class Socket:
    """The model's end of one of the two connections."""

    def __init__(self, protocol: Any) -> None:
        self.protocol = protocol
        self.sent: list[Any] = []
        self.is_closed = False
        self._decoder: FrameDecoder[Any] = FrameDecoder(msg.FromClient, limit=1 << 30)
        protocol.connection_made(self)

    def write(self, data: bytes) -> None:
        self.sent += self._decoder.feed(data)

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.protocol.connection_lost(None)

    abort = close

    def say(self, *messages: msg.ToClient) -> None:
        self.protocol.data_received(encode(messages))


class Model:
    """A model, and both connections to it."""

    def __init__(self, *, has_bulk: bool = True, **info: Any) -> None:
        self.lost: list[list[Answer]] = []
        self.connection = ModelConnection(lambda _: None, self.lost.append)
        self.usual = Socket(self.connection)
        self.bulk = Socket(self.connection.bulk) if has_bulk else self.usual
        model = ModelInfo(name="m", return_seconds=60, migration_limit=3, **info)
        for each in {self.usual, self.bulk}:
            each.say(msg.Welcome(Context(), model))

    def submit(self, work: Any) -> Answer:
        return self.connection.submit(work, "")


def test_what_is_large_takes_the_second_and_its_answer_comes_there() -> None:
    model = Model()
    large, small = model.submit(LARGE), model.submit(HttpRequest("/v1/completions", b"{}"))
    assert [each.id for each in model.bulk.sent[1:]] == [large.request_id]
    assert model.bulk.sent[1].request.body == BODY
    assert [each.id for each in model.usual.sent[1:]] == [small.request_id]
    for socket, answer in ((model.bulk, large), (model.usual, small)):
        socket.say(msg.HttpOutput(answer.request_id, HttpChunk(b"a", is_last=True)))
        assert answer.unread_chunks


def test_an_abort_finds_the_request_on_either() -> None:
    model = Model()
    model.submit(LARGE).abort()
    assert isinstance(model.bulk.sent[-1], msg.Abort)
    assert isinstance(model.usual.sent[-1], msg.Abort)


def test_without_a_second_connection_the_first_takes_all() -> None:
    model = Model(has_bulk=False)
    answer = model.submit(LARGE)
    assert [each.id for each in model.usual.sent[1:]] == [answer.request_id]


@pytest.mark.parametrize("first", ["bulk", "usual"])
def test_both_end_together_and_answers_may_resume(first: str) -> None:
    model = Model()
    answers = [model.submit(LARGE), model.submit(HttpRequest("/v1/completions", b"{}"))]
    getattr(model, first).close()
    assert model.usual.is_closed
    assert model.bulk.is_closed
    assert model.lost == [answers]
    again = Model()
    again.connection.resume(answers[0])
    assert again.bulk.sent[-1].request.body == BODY


def test_a_prompt_that_no_tokens_can_have_is_refused_before_it_is_sent() -> None:
    model = Model(max_model_len=100, longest_token=10)
    model.submit((GenerateRequest("a" * 1000),))
    cut = Sampling(truncate_prompt_tokens=5)
    model.submit((GenerateRequest("a" * 1001, cut),))
    sent = len(model.usual.sent)
    with pytest.raises(RequestError, match="prompt has 1001 characters; accepted: at most 1000"):
        model.submit((GenerateRequest("a"), GenerateRequest("a" * 1001)))
    assert len(model.usual.sent) == sent
