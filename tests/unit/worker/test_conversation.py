"""A conversation with the echo engine over a real socket, without a process."""

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.echo import EchoEngine
from lmi_backend.generation import GenerateRequest, HttpRequest, Sampling
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.engine import EngineStats
from lmi_backend.ipc.frames import FrameDecoder, encode
from lmi_backend.worker.coalescer import Coalescer, PromptSink
from lmi_backend.worker.conversation import Conversation
from lmi_backend.worker.heartbeats import HangDetector
from tests.support.run.waiting import HANG_SECONDS, nothing_more, until

START = msg.Start("echo", EngineConfig(model=""))
SHORT = 0.01
SLOW = msg.Start("echo", EngineConfig(model="", arguments={"token_seconds": 60.0}))


class Stub:
    """The stub's end: says something, and hears until it has heard enough."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._decoder: FrameDecoder[Any] = FrameDecoder(msg.FromWorker, limit=1 << 20)
        self._heard: list[Any] = []
        self.status: asyncio.Task[int] | None = None

    def say(self, *messages: msg.ToWorker) -> None:
        self.socket.sendall(encode(messages))

    async def hear(self, kind: type) -> Any:
        """Return the next message of a kind; what came before it is passed over."""
        loop = asyncio.get_running_loop()
        while True:
            while self._heard:
                if isinstance(message := self._heard.pop(0), kind):
                    return message
            data = await asyncio.wait_for(loop.sock_recv(self.socket, 1 << 16), HANG_SECONDS)
            self._heard = self._decoder.feed(data)

    async def text(self, number: int, answers: int = 1) -> list[str]:
        """Return the answers to a request."""
        texts, open_ = [""] * answers, answers
        while open_:
            output = await self.hear(msg.Output)
            assert output.id == number
            texts[output.chunk.index] += output.chunk.text
            open_ -= output.chunk.is_last
        return texts

    async def ended(self) -> int:
        assert self.status is not None
        return await asyncio.wait_for(self.status, HANG_SECONDS)


@pytest.fixture
async def stub() -> AsyncIterator[Stub]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    conversation = Conversation(*await asyncio.open_connection(sock=theirs))
    stub = Stub(ours)
    stub.status = asyncio.create_task(conversation.run())
    yield stub
    conversation.stop()
    await stub.ended()
    await conversation.close()
    ours.close()
    # A worker keeps what was loaded out of the collector's sight; these tests continue.
    gc.unfreeze()


def submit(number: int, *prompts: str, **fields: Any) -> msg.Submit:
    sampling = Sampling(max_tokens=2)
    return msg.Submit(number, tuple(GenerateRequest(p, sampling, **fields) for p in prompts))


async def test_an_idle_engine_is_looked_at_once_a_second(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.say(SLOW)
    await stub.hear(msg.Ready)
    looks: list[EngineStats] = []
    stats = EchoEngine.stats
    monkeypatch.setattr(EchoEngine, "stats", lambda self: looks.append(stats(self)) or looks[-1])
    for _ in range(3):
        assert (await stub.hear(msg.Heartbeat)).stats == EngineStats()
    assert len(looks) <= 4
    # Its first request is told at once all the same.
    stub.say(submit(1, "a"))
    assert (await stub.hear(msg.Heartbeat)).stats.running == 1
    assert len(looks) <= 8


async def test_a_started_engine_answers(stub: Stub) -> None:
    stub.say(START)
    ready = await stub.hear(msg.Ready)
    assert (ready.capabilities.engine, ready.capabilities.max_model_len) == ("echo", 4096)
    stub.say(submit(1, "a b"))
    assert await stub.text(1) == ["a b"]
    stub.say(msg.SubmitHttp(2, HttpRequest("/x", b"body")))
    assert (await stub.hear(msg.Output)).chunk.data == b"body"
    assert (await stub.hear(msg.Heartbeat)).stats.running == 0
    stub.say(msg.Stop())
    assert await stub.ended() == 0


async def test_each_prompt_has_its_answers_in_order(stub: Stub) -> None:
    stub.say(START)
    await stub.hear(msg.Ready)
    stub.say(submit(1, "a", "b", n=2, stream=False))
    assert await stub.text(1, answers=4) == ["aa", "aa", "bb", "bb"]


@pytest.mark.parametrize(
    ("start", "option", "words"),
    [
        (msg.Start("none", EngineConfig(model="")), "", "engine 'none' is unknown"),
        (
            msg.Start("echo", EngineConfig(model="", passthrough={"token_seconds": "x"})),
            "option.token_seconds",
            "is refused by the echo engine",
        ),
        (
            msg.Start("echo", EngineConfig(model="", arguments={"none": 1})),
            "",
            "engine echo failed to start: TypeError",
        ),
    ],
)
async def test_an_engine_that_cannot_start_is_said_and_ends_it(
    stub: Stub, start: msg.Start, option: str, words: str
) -> None:
    stub.say(start)
    failed = await stub.hear(msg.StartFailed)
    assert words in failed.message
    assert failed.option == option
    assert await stub.ended() == 1


async def test_a_request_before_the_engine_fails_alone(stub: Stub) -> None:
    stub.say(submit(1, "a"))
    failure = await stub.hear(msg.Failure)
    assert (failure.id, failure.kind, failure.message) == (1, "engine", "the engine is not started")
    stub.say(START)
    await stub.hear(msg.Ready)


async def test_what_is_wrong_with_one_request_ends_this_one(stub: Stub) -> None:
    stub.say(START)
    await stub.hear(msg.Ready)
    stub.say(submit(1, "a", adapter="none"), submit(2, "b"))
    failure = await stub.hear(msg.Failure)
    assert (failure.id, failure.kind, failure.field) == (1, "request", "adapter")
    assert await stub.text(2) == ["bb"]
    stub.say(msg.SetAdapter(3, "none", ""), submit(4, "c"))
    assert (await stub.hear(msg.Output)).id == 3
    assert await stub.text(4) == ["cc"]


async def test_an_abort_frees_the_engine_and_says_nothing(stub: Stub) -> None:
    stub.say(SLOW)
    await stub.hear(msg.Ready)
    stub.say(submit(1, "a"))
    while not (await stub.hear(msg.Heartbeat)).stats.running:
        pass
    stub.say(msg.Abort([1, 99]))
    while (await stub.hear(msg.Heartbeat)).stats.running:
        pass
    stub.say(msg.Stop())
    assert await stub.ended() == 0


async def test_who_still_waits_at_the_end_hears_it(stub: Stub) -> None:
    stub.say(SLOW)
    await stub.hear(msg.Ready)
    stub.say(submit(1, "a"), msg.Stop())
    failure = await stub.hear(msg.Failure)
    assert (failure.id, failure.kind) == (1, "stopping")


async def test_a_dead_engine_ends_everything(stub: Stub) -> None:
    arguments = {"die_on": "die", "token_seconds": 0.01}
    stub.say(msg.Start("echo", EngineConfig(model="", arguments=arguments)))
    await stub.hear(msg.Ready)
    stub.say(submit(1, "die"))
    failure = await stub.hear(msg.Failure)
    assert (failure.id, failure.kind) == (1, "dead")
    assert await stub.ended() == 1


def _with_code(folder: Path) -> EngineConfig:
    return EngineConfig(model="", custom_file=str(folder / "model.py"), runs_code=True)


def _broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("broken")


async def test_an_exception_at_a_place_of_one_request_ends_this_one(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where messages are read, where they are answered, and where their chunks are taken."""
    stub.say(START)
    await stub.hear(msg.Ready)
    places = [(Coalescer, "open"), (Conversation, "_work"), (PromptSink, "take")]
    for number, (kind, name) in enumerate(places, 1):
        with monkeypatch.context() as patch:
            patch.setattr(kind, name, _broken)
            stub.say(submit(number, "a"))
            failure = await stub.hear(msg.Failure)
        assert (failure.id, failure.message) == (number, "RuntimeError: broken"), name
        stub.say(submit(99, "b"))
        assert await stub.text(99) == ["bb"]


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (EchoEngine, "stats", "the engine's stats cannot be had: RuntimeError: broken"),
        (EchoEngine, "check_health", "the engine's health cannot be had: RuntimeError: broken"),
        (HangDetector, "check", "the engine's health cannot be had: RuntimeError: broken"),
    ],
)
async def test_the_worker_beats_on_whatever_its_engine_raises(
    stub: Stub,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: type,
    name: str,
    message: str,
) -> None:
    monkeypatch.setattr(msg, "HEARTBEAT_SECONDS", SHORT)
    stub.say(START)
    await stub.hear(msg.Ready)
    with monkeypatch.context() as patch:
        patch.setattr(kind, name, _broken)
        for _ in range(4):
            await stub.hear(msg.Heartbeat)
    assert [line.getMessage() for line in caplog.records if line.levelname == "ERROR"] == [message]


async def test_an_answer_pauses_while_the_stub_reads_nothing(stub: Stub, tmp_path: Path) -> None:
    """A handler that answers without an end fills no more memory than is stated."""
    code = """
from pathlib import Path
from djl_python import Output

async def pieces():
    for number in range(1000):
        Path(__file__).with_name("made").write_text(str(number))
        yield bytes(1 << 20)

def handle(inputs):
    return None if inputs.is_empty() else Output().add_stream_content(pieces(), lambda each: each)
"""
    (tmp_path / "model.py").write_text(code)
    stub.say(msg.Start("echo", _with_code(tmp_path)))
    await stub.hear(msg.Ready)
    stub.say(msg.SubmitHttp(1, HttpRequest("/invocations", b"")))
    made = tmp_path / "made"
    await until(lambda: made.exists() and int(made.read_text() or 0) >= 8)
    await asyncio.to_thread(nothing_more, 0.2, "the handler must not make all of its 1000 pieces")
    assert int(made.read_text()) < 100
    stub.say(msg.Abort([1]))


async def test_bytes_that_are_no_messages_end_it_with_a_fault(stub: Stub) -> None:
    stub.socket.sendall(b"\x04\x00\x00\x00\xff\xff\xff\xff")
    assert await stub.ended() == 1
