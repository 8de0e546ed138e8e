"""Streams that are written here are those of vLLM's server, and what tells more is left to it."""

import asyncio
import re
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.clients.openai import CHATS
from lmi_backend.engines.vllm import fast_paths, streams
from lmi_backend.engines.vllm.bodies import BodyAnswer, BodyKind, current_answer
from lmi_backend.generation import Continuation, HttpChunk
from lmi_backend.tokenization import unpack
from tests.support.waiting import HANG_SECONDS, turns
from tests.unit.engines.vllm.vllm_engine import AsyncLLM, Sink, client_of
from tests.unit.engines.vllm.vllm_parts import PROMPT, FinishReason, Output, Params
from tests.unit.engines.vllm.vllm_server import (
    OpenAIServingChat,
    OpenAIServingCompletion,
    read_events,
)

pytestmark = pytest.mark.usefixtures("vllm")

HEAD = HttpChunk(headers={"content-type": "text/event-stream"})


class Served:
    """An application of vLLM's around an engine."""

    def __init__(self, text: str = "", **engine: Any) -> None:
        self.engine = AsyncLLM([ord(each) for each in text], **engine)
        self.client = client_of(self.engine)
        self.chat, self.completion = OpenAIServingChat(), OpenAIServingCompletion()
        state = SimpleNamespace(
            openai_serving_chat=self.chat, openai_serving_completion=self.completion
        )
        self.app = SimpleNamespace(state=state, routes=[])
        self.kinds: dict[str, BodyKind] = {}

    def body(self, **asked: Any) -> Any:
        """Return a body as vLLM has read it."""
        usual = {
            "include_usage": True, "tools": None, "parallel_tool_calls": True, "tool_choice": None,
            "tells_reasoning": False, "echo": False, "return_token_ids": False, "messages": [],
        }  # fmt: skip
        return SimpleNamespace(**usual | asked)

    async def respond(
        self, path: str, params: Params, *, prompt: Any = PROMPT,
        continuation: Continuation | None = None, sink: Sink | None = None, **asked: Any,
    ) -> tuple[list[HttpChunk], BodyAnswer]:  # fmt: skip
        """Answer a body, as the endpoint of vLLM's server does."""
        sink = sink or Sink()
        kind = self.kinds.setdefault(path, BodyKind())
        answer = BodyAnswer(
            sink, self.engine, sends_ids=True, continuation=continuation, kind=lambda: kind
        )
        answer.begin(HEAD)
        answer.buffers_role = path == CHATS
        current_answer.set(answer)
        outputs = self.client.generate({"prompt_token_ids": prompt}, params, "chatcmpl-1")
        body = self.body(**asked)
        if path == CHATS:
            stream: Any = self.chat.chat_completion_stream_generator(
                body, outputs, "chatcmpl-1", "lmi", [], None, None, chat_template_kwargs={}
            )
        else:
            numbered = streams._numbered(outputs)
            stream = self.completion.completion_stream_generator(
                body, [], numbered, "chatcmpl-1", 1, "lmi", 1, None, request_metadata=None
            )
        async for event in stream:
            answer.take(HttpChunk(event.encode()))
        answer.take(HttpChunk(is_last=True))
        return sink.taken, answer


def joined(chunks: list[HttpChunk]) -> tuple[Any, ...]:
    ids = [each for chunk in chunks for group in unpack(chunk.ids) for each in group]
    counts = sum(each.num_tokens for each in chunks), [each.is_last for each in chunks].count(True)
    return read_events(b"".join(each.data for each in chunks)), ids, counts


async def test_several_answers_and_several_calls_are_the_servers() -> None:
    served = Served()
    params = Params(n=2)
    answer = BodyAnswer(Sink(), served.engine, sends_ids=True)
    current_answer.set(answer)
    served.client.generate({"prompt_token_ids": PROMPT}, params, "a")
    assert streams._call_of_own(served.body()) is None
    params.n = 1
    assert streams._call_of_own(served.body()) is answer.call
    with fast_paths.without("own_streams"):
        assert streams._call_of_own(served.body()) is None
    served.client.generate({"prompt_token_ids": PROMPT}, params, "b")
    assert streams._call_of_own(served.body()) is None
    current_answer.set(None)
    assert streams._call_of_own(served.body()) is None


async def test_a_server_that_cannot_write_made_up_outputs_writes_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> Any:
        raise TypeError("no such output")

    served = Served("abc")
    streams.attach(served.app)
    monkeypatch.setattr(streams, "_sampled", fail)
    chunks, _ = await served.respond(CHATS, Params())
    assert joined(chunks)[1] == [*b"abc"]
    assert served.chat.num_written == len("abc")
    assert "no such output" in fast_paths.reason_of("own_streams")
    assert served.kinds[CHATS].is_laid_out


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
        task = asyncio.ensure_future(served.respond(CHATS, params))
        await turns(30)
        for _ in range(count):
            served.engine.step(Output("chatcmpl-1", [97]))
            await turns(10 * reads)
        served.engine.step(Output("chatcmpl-1", [98], finish_reason=FinishReason.ERROR))
        chunks, _ = await asyncio.wait_for(task, HANG_SECONDS)
        events, *_ = joined(chunks)
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
    task = asyncio.ensure_future(served.respond(CHATS, Params()))
    await turns(30)
    served.engine.errored = True
    served.engine.output_processor.propagate_error(RuntimeError("the core is dead"))
    with pytest.raises(RuntimeError, match="the core is dead"):
        await asyncio.wait_for(task, HANG_SECONDS)
