"""Streams that are written here are those of vLLM's server, and what tells more is left to it."""

import asyncio
import re
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm import fast_paths, streams
from lmi_backend.engines.vllm.bodies import BodyAnswer, BodyKind, current_answer
from lmi_backend.generation import HttpChunk
from lmi_backend.tokenization import unpack
from tests.support.run.waiting import HANG_SECONDS, turns
from tests.unit.engines.vllm.vllm_engine import AsyncLLM, Sink, client_of
from tests.unit.engines.vllm.vllm_parts import PROMPT, FinishReason, Output, Params
from tests.unit.engines.vllm.vllm_server import OpenAIServingChat, body, read_events

pytestmark = pytest.mark.usefixtures("vllm")

HEAD = HttpChunk(headers={"content-type": "text/event-stream"})


class Served:
    """An application of vLLM's around an engine."""

    def __init__(self, text: str = "") -> None:
        self.engine = AsyncLLM([ord(each) for each in text])
        self.client = client_of(self.engine)
        self.chat = OpenAIServingChat()
        self.app = SimpleNamespace(state=SimpleNamespace(openai_serving_chat=self.chat), routes=[])
        self.kind = BodyKind()

    async def respond(self, params: Params) -> list[HttpChunk]:
        """Answer a chat, as the endpoint of vLLM's server does."""
        sink = Sink()
        answer = BodyAnswer(sink, self.engine, sends_ids=True, kind=lambda: self.kind)
        self.answer = answer
        answer.begin(HEAD)
        answer.buffers_role = True
        current_answer.set(answer)
        outputs = self.client.generate({"prompt_token_ids": PROMPT}, params, "chatcmpl-1")
        stream: Any = self.chat.chat_completion_stream_generator(
            body(), outputs, "chatcmpl-1", "lmi", [], None, None, chat_template_kwargs={}
        )
        async for event in stream:
            answer.take(HttpChunk(event.encode()))
        answer.take(HttpChunk(is_last=True))
        return sink.taken


async def test_what_is_written_here_is_counted_and_has_its_ids() -> None:
    """Its events are those of the server: tests/contract/test_events.py."""
    served = Served("abc")
    streams.attach(served.app)
    chunks = await served.respond(Params())
    assert served.chat.num_written == 0
    assert [unpack(each.ids) for each in chunks] == [[[each]] for each in b"abc"]
    assert [each.is_last for each in chunks] == [False, False, True]
    assert (served.answer.prompt_tokens, served.answer.generated_tokens) == (len(PROMPT), 3)


async def test_several_answers_and_several_calls_are_the_servers() -> None:
    served = Served()
    params = Params(n=2)
    answer = BodyAnswer(Sink(), served.engine, sends_ids=True)
    current_answer.set(answer)
    served.client.generate({"prompt_token_ids": PROMPT}, params, "a")
    assert streams.call_of_own(body()) is None
    params.n = 1
    assert streams.call_of_own(body()) is answer.call
    with fast_paths.without("own_streams"):
        assert streams.call_of_own(body()) is None
    served.client.generate({"prompt_token_ids": PROMPT}, params, "b")
    assert streams.call_of_own(body()) is None
    current_answer.set(None)
    assert streams.call_of_own(body()) is None


async def test_a_server_that_cannot_write_made_up_outputs_writes_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> Any:
        raise TypeError("no such output")

    served = Served("abc")
    streams.attach(served.app)
    monkeypatch.setattr(streams, "_sampled", fail)
    chunks = await served.respond(Params())
    assert [unpack(each.ids) for each in chunks if each.ids] == [[[each]] for each in b"abc"]
    assert served.chat.num_written == len("abc")
    assert "no such output" in fast_paths.reason_of("own_streams")
    assert served.kind.is_laid_out


@pytest.mark.parametrize("structured", [None, object()])
@pytest.mark.parametrize(("count", "reads"), [(0, True), (2, True), (2, False)])
async def test_a_failure_in_mid_stream_is_told_after_what_came(
    count: int, reads: bool, structured: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nobody reads between the steps, so that vLLM merges their outputs."""

    async def check(*_: Any) -> None:
        """Refuse no grammar."""

    found = []
    for is_attached in (False, True):
        served = Served()
        monkeypatch.setattr(served.client, "check", check)
        if is_attached:
            streams.attach(served.app)
        params = Params(structured_outputs=structured)
        task = asyncio.ensure_future(served.respond(params))
        await turns(30)
        for _ in range(count):
            served.engine.step(Output("chatcmpl-1", [97]))
            await turns(10 * reads)
        served.engine.step(Output("chatcmpl-1", [98], finish_reason=FinishReason.ERROR))
        chunks = await asyncio.wait_for(task, HANG_SECONDS)
        events = read_events(b"".join(each.data for each in chunks))
        found.append([each for each in events if type(each) is bytes or each.get("error")])
        assert sum(each.data.count(b'"role"') for each in chunks) <= 1
        texts = (re.findall(rb'"content":"(a*)"', each.data) for each in chunks)
        assert b"".join(chain.from_iterable(texts)) == b"a" * count
    assert found[0] == found[1]
    (error, done) = found[1]
    assert done == b"data: [DONE]"
    expected = f"after {count} tokens" if count else "fit no text"
    assert (expected if structured else "Internal server error") in error["error"]["message"]


async def test_a_dead_engine_is_raised() -> None:
    served = Served()
    streams.attach(served.app)
    task = asyncio.ensure_future(served.respond(Params()))
    await turns(30)
    served.engine.errored = True
    served.engine.output_processor.propagate_error(RuntimeError("the core is dead"))
    with pytest.raises(RuntimeError, match="the core is dead"):
        await asyncio.wait_for(task, HANG_SECONDS)
