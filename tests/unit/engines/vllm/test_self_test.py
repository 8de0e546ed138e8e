"""Differences that are found before a client sees them, and what is not served at all."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lmi_backend.clients.openai import CHATS
from lmi_backend.engines.vllm import compat, fast_paths, self_test
from lmi_backend.engines.vllm.answers import OwnAnswer
from lmi_backend.engines.vllm.requests import OutputReader
from lmi_backend.engines.vllm.self_test import SelfTest
from lmi_backend.errors import ConfigurationError
from lmi_backend.generation import HttpChunk, HttpRequest
from tests.unit.engines.vllm import vllm_engine
from tests.unit.engines.vllm.vllm_engine import AsyncLLM
from tests.unit.engines.vllm.vllm_parts import Output, Tokenizer
from tests.unit.engines.vllm.vllm_server import STREAM, chat_event

pytestmark = pytest.mark.usefixtures("vllm")

TEXT = b"o and lived happily " * 200


class Words(Tokenizer):
    """Makes prompts of the length that the core counts from."""

    def encode(self, text: str) -> list[int]:
        return [101, 102, 103]


class Server:
    """Answers bodies, by either way as it is told."""

    def __init__(self, **own: Any) -> None:
        self.paths: list[str] = []
        self.status, self.calls, self.own = 200, 1, own
        self.theirs, self.is_written = ["a", "b", "c"], True

    async def respond(self, request: HttpRequest, sink: Any) -> Any:
        self.paths.append(request.path)
        is_own = fast_paths.is_on("own_streams")
        for text in ("ab", "c") if is_own else self.theirs:
            reason = "length" if text.endswith("c") else None
            stream = STREAM | (self.own if is_own else {})
            sink.take(HttpChunk(chat_event(stream, {"content": text}, reason).encode()))
        head = HttpChunk(status=self.status)
        return SimpleNamespace(head=head, num_calls=self.calls, is_written=self.is_written)


async def run(engine: AsyncLLM, server: Server | None = None, tokenizer: Any = None) -> str:
    """Return why answers of our own are off."""
    server = server or Server()
    await SelfTest(engine, tokenizer or Words(), server.respond, "m").run()
    assert engine.output_processor.recorded is None
    assert engine.output_processor.answers == engine.output_processor.request_states == {}
    return fast_paths.reason_of("own_streams")


async def test_answers_that_are_the_same_stay_on() -> None:
    server, engine = Server(id="chatcmpl-other", created=2), AsyncLLM(TEXT)
    assert await run(engine, server) == ""
    # Each path by vLLM's way, and twice by our own.
    assert [server.paths.count(each) for each in set(server.paths)] == [3, 3]
    assert "self-test-abort" in engine.engine_core.aborted


async def test_an_abort_that_fails_is_seen() -> None:
    engine = AsyncLLM(TEXT)
    engine.engine_core.abort_requests_async = None  # type: ignore[assignment, method-assign]
    assert "'NoneType' object is not callable" in await run(engine)


async def test_vllm_may_merge_all_tokens_into_one_event() -> None:
    """It does if its core is ahead of its server, as on a busy machine."""
    server = Server()
    server.theirs = ["abc"]
    assert await run(AsyncLLM(TEXT), server) == ""


async def test_streams_that_the_server_writes_all_the_same_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A release may write them by another method: the answers are right then, and cost more."""
    server = Server()
    server.is_written = False
    assert await run(AsyncLLM(TEXT), server) == ""
    assert f"vLLM's server writes the streams of {CHATS}" in caplog.text


async def test_an_engine_without_a_tokenizer_is_tested_by_ids() -> None:
    engine = AsyncLLM(TEXT * 2)
    engine.output_processor.tokenizer = None
    test = SelfTest(engine, None, Server().respond, "m")
    test.prompt = [101, 102, 103]
    await test.run()
    assert fast_paths.is_on("own_streams")


def _lost(self: Any, output: Any) -> bool:
    """Lose the second token."""
    output.new_token_ids = [each for each in output.new_token_ids if each != TEXT[1]]
    return TAKE(self, output)


def _stuck(self: Any, output: Any) -> bool:
    raise LookupError("another vLLM")


TAKE = OwnAnswer.take


@pytest.mark.parametrize(("take", "why"), [(_lost, "and not"), (_stuck, "another vLLM")])
async def test_another_answer_turns_our_own_off(
    take: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OwnAnswer, "take", take)
    engine = AsyncLLM(TEXT)
    await SelfTest(engine, Words(), Server().respond, "m").run()
    assert why in fast_paths.reason_of("own_streams")


async def test_what_fails_halfway_leaves_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OutputReader, "deltas", _stuck)
    assert "another vLLM" in await run(AsyncLLM(TEXT))


async def test_an_older_output_has_fewer_members(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = [(each.name, each.type, each.default) for each in msgspec.structs.fields(Output)]
    older = [each for each in fields if each[0] != "prefill_stats"]
    monkeypatch.setattr(vllm_engine, "Output", msgspec.defstruct("Output", older))
    assert await run(AsyncLLM(TEXT)) == ""


async def test_other_events_turn_it_off() -> None:
    reason = await run(AsyncLLM(TEXT), Server(seconds=1))
    assert CHATS in reason
    assert "and not" in reason


async def test_a_body_that_the_server_refuses_says_nothing() -> None:
    server = Server(seconds=1)
    server.status, server.calls = 404, 0
    assert await run(AsyncLLM(TEXT), server) == ""


async def test_a_server_that_generates_otherwise_is_refused() -> None:
    """Nobody would count its tokens, nor look at its grammars."""
    server = Server()
    server.calls = 0
    with pytest.raises(ConfigurationError, match=r"by other means than AsyncLLM\.generate"):
        await run(AsyncLLM(TEXT), server)


async def test_an_answer_that_stays_when_it_is_left_turns_it_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Sticky(dict[str, Any]):
        def pop(self, *_: Any) -> Any:
            """Keep it."""

    engine = AsyncLLM(TEXT)
    engine.output_processor.answers = Sticky()
    await SelfTest(engine, Words(), Server().respond, "m").run()
    assert "an answer that is left does not end" in fast_paths.reason_of("own_streams")


async def test_only_the_public_way_is_tried_where_it_is_off() -> None:
    server = Server()
    fast_paths.turn_off("own_streams", "a vLLM", "another")
    assert "another" in await run(AsyncLLM(TEXT), server)
    assert server.paths == [path for path, _ in self_test.BODIES]


async def test_an_answer_may_have_no_text() -> None:
    """A model may begin with tokens that are not shown."""
    fast_paths.turn_off("own_streams", "a vLLM", "another")
    assert "another" in await run(AsyncLLM(bytes([6]) * 20))


async def test_a_public_way_that_raises_or_does_not_end_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    test = SelfTest(AsyncLLM(), Words(), Server().respond, "m")
    test.prompt = []
    with pytest.raises(ConfigurationError, match=r"AsyncLLM\.generate raises ValueError"):
        await test.run()
    monkeypatch.setattr(compat, "ANSWER_SECONDS", 0)
    with pytest.raises(ConfigurationError, match="does not end"):
        await run(AsyncLLM())
