"""Answers that outlive their model's process: what is asked of the next one, and who waits."""

import asyncio
from typing import Any

import pytest

from lmi_backend.engine_config import ClientSettings, ModelInfo
from lmi_backend.errors import EngineDeadError
from lmi_backend.frontend.connection import Answer, ModelConnection
from lmi_backend.frontend.held import HeldAnswers
from lmi_backend.generation import Delta, GenerateRequest, HttpChunk, HttpRequest
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import FrameDecoder, encode
from lmi_backend.token_ids import pack, unpack


class Endpoint:
    """A model's end of a connection; what it was sent is in `sent`."""

    def __init__(self, held: HeldAnswers, seconds: float = 60.0, limit: int = 2) -> None:
        self.sent: list[Any] = []
        self._decoder: FrameDecoder[Any] = FrameDecoder(msg.FromClient, limit=1 << 20)
        self.connection = ModelConnection(
            lambda _: held.resume(self.connection),
            lambda answers: held.hold(answers, self.connection),
        )
        self.connection.connection_made(self)  # type: ignore[arg-type]
        model = ModelInfo(name="m", return_seconds=seconds, migration_limit=limit)
        self.say(msg.Welcome(ClientSettings(), is_custom=False, adapters=[], model=model))

    def write(self, data: bytes) -> None:
        self.sent += self._decoder.feed(data)

    def say(self, *messages: Any) -> None:
        self.connection.data_received(encode(messages))

    def die(self) -> None:
        self.connection.connection_lost(None)


def chunk(text: str, token_id: int) -> Delta:
    return Delta(text, 1, ids=pack([token_id]))


async def rest(answer: Answer) -> str:
    return "".join(each.text for each in await answer.read() if isinstance(each, Delta))


async def test_a_stream_goes_on_in_the_next_process_from_its_ids() -> None:
    held = HeldAnswers()
    first = Endpoint(held)
    assert first.sent == [msg.Hello(msg.PROTOCOL, first.sent[0].pid, keeps_ids=True)]
    answer = first.connection.submit((GenerateRequest("a"),), "tenant")
    first.say(msg.Output(1, chunk("b", 5)), msg.Output(1, chunk("c", 6)))
    first.die()
    second = Endpoint(held)
    asked = second.sent[-1]
    assert (asked.id, asked.tenant) == (1, "tenant")
    assert unpack(asked.requests[0].continuation.ids) == [[5], [6]]
    second.say(msg.Output(1, chunk("d", 7)))
    # What came before is still the client's to read, and is not asked for again.
    assert await rest(answer) == "bcd"
    second.die()
    third = Endpoint(held)
    assert unpack(third.sent[-1].requests[0].continuation.ids) == [[5], [6], [7]]
    # Twice is as often as it may.
    third.die()
    with pytest.raises(EngineDeadError, match=r"its process died$"):
        await rest(answer)


async def test_the_stub_that_goes_on_keeps_what_came_before() -> None:
    held = HeldAnswers()
    first = Endpoint(held)
    body = HttpRequest("/v1/chat/completions", b'{"stream": true}')
    first.connection.submit(body, "")
    first.say(msg.HttpOutput(1, HttpChunk(b'data: {"id": "x"}\n\n', num_tokens=1, ids=pack([5]))))
    first.die()
    second = Endpoint(held)
    where = second.sent[-1].request.continuation
    assert (unpack(where.ids), where.num_lines, where.head) == ([[5]], 2, b'data: {"id": "x"}\n\n')


@pytest.mark.parametrize(
    ("work", "said"),
    [
        # Several answers: whose ids they are is not known.
        (HttpRequest("/v1/completions", b'{"n": 2}'), HttpChunk(b"data: 1\n\n", ids=pack([5]))),
        # An engine that tells no ids.
        (HttpRequest("/v1/completions", b"{}"), HttpChunk(b"data: 1\n\n", num_tokens=1)),
        # All of it has come.
        (HttpRequest("/v1/completions", b"{}"), HttpChunk(b"{}", is_last=True)),
        # Users' own code is not called twice.
        (HttpRequest("/invocations", b"{}"), None),
    ],
)
async def test_what_cannot_go_on_ends_at_once(work: HttpRequest, said: HttpChunk | None) -> None:
    held = HeldAnswers()
    model = Endpoint(held)
    answer = model.connection.submit(work, "")
    if said is not None:
        model.say(msg.HttpOutput(1, said))
        await answer.read()
    model.die()
    with pytest.raises(EngineDeadError):
        await answer.read()
    assert len(Endpoint(held).sent) == 1


async def test_what_has_sent_nothing_is_asked_again_whatever_it_wants() -> None:
    held = HeldAnswers()
    model = Endpoint(held)
    body = HttpRequest("/v1/completions", b'{"n": 2}')
    model.connection.submit(body, "")
    model.die()
    assert Endpoint(held).sent[-1] == msg.SubmitHttp(1, body)


@pytest.mark.parametrize("is_told", [True, False])
async def test_who_leaves_meanwhile_is_not_asked_for(*, is_told: bool) -> None:
    held = HeldAnswers()
    model = Endpoint(held)
    answer = model.connection.submit((GenerateRequest("a"),), "")
    model.die()
    if is_told:
        answer.abort()
        answer.fail(EngineDeadError("the client left"))
    answer.close()
    assert len(Endpoint(held).sent) == 1


async def test_the_wait_is_bounded_and_ends_with_the_server() -> None:
    held = HeldAnswers()
    model = Endpoint(held, seconds=0.01)
    late = model.connection.submit((GenerateRequest("a"),), "")
    model.die()
    with pytest.raises(EngineDeadError, match=r"not back within 0 s \(option.migration_timeout\)"):
        await asyncio.wait_for(late.read(), 10)
    model = Endpoint(held)
    stopped = model.connection.submit((GenerateRequest("a"),), "")
    model.die()
    held.give_up()
    with pytest.raises(EngineDeadError):
        await stopped.read()
    assert len(Endpoint(held).sent) == 1


async def test_each_wait_has_its_own_time() -> None:
    held = HeldAnswers()
    model = Endpoint(held, seconds=0.2)
    answer = model.connection.submit((GenerateRequest("a"),), "")
    model.die()
    model = Endpoint(held, seconds=60)
    model.die()
    # The time of the first wait is over.
    await asyncio.sleep(0.4)
    model = Endpoint(held)
    model.say(msg.Output(1, chunk("b", 5)))
    assert await rest(answer) == "b"


async def test_switched_off_nothing_waits() -> None:
    held = HeldAnswers()
    model = Endpoint(held, seconds=0.0)
    answer = model.connection.submit((GenerateRequest("a"),), "")
    model.die()
    with pytest.raises(EngineDeadError):
        await answer.read()
