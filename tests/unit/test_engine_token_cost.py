"""What a known chat and a token of it cost the worker beside vLLM, counted as in test_cost."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.clients.openai import CHATS
from lmi_backend.engines.bodies import BodyBounds, check_body
from lmi_backend.engines.vllm import answers, names
from lmi_backend.engines.vllm.answers import Generation
from lmi_backend.engines.vllm.bodies import BodyAnswer, Kinds, Rendering, SeenRenderer, Template
from lmi_backend.engines.vllm.chats import Chats
from lmi_backend.engines.vllm.requests import OutputReader
from lmi_backend.engines.vllm.streams import StreamWriter
from lmi_backend.generation import GenerateRequest, HttpChunk, HttpRequest
from lmi_backend.ipc.flush_policy import FlushPolicy
from lmi_backend.worker.coalescer import AnswerSink, Coalescer
from lmi_backend.worker.outgoing import Outgoing
from tests.unit.engines.vllm.vllm_engine import AsyncLLM, client_of, stand_in
from tests.unit.engines.vllm.vllm_parts import Output, Params, Request, lists
from tests.unit.engines.vllm.vllm_server import layouts
from tests.unit.test_cost import MARGIN, STEPS, STREAMS, Calls

ENGINE_TOKEN, TOKEN_OF_8 = 26.6, 8.7
"""Calls of functions that a token costs which is an event, and one of eight that share an event;
of vLLM's detokeniser two calls are counted, and nothing in them."""
LOGPROB_TOKEN = 43.6
"""The same of a token with its log probability, which is alone."""
KNOWN_BODY = 138
"""Of a body of a known kind, until it is a prompt; vLLM's renderer left out."""


class Detokenizer:
    """Makes the same text of all tokens."""

    stop = ()

    @classmethod
    def from_new_request(cls, tokenizer: Any, request: Any) -> "Detokenizer":
        return cls()

    def update(self, new_token_ids: list[int], stop_terminated: bool) -> None:
        """Find no stop string."""

    def get_next_output_text(self, finished: bool, delta: bool) -> str:
        return "word "


@pytest.fixture(autouse=True)
def _vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch)
    monkeypatch.setitem(vars(names), "IncrementalDetokenizer", Detokenizer)


def open_answer(engine: AsyncLLM, number: int, maker: Any, sink: Any, **params: Any) -> None:
    """Open an answer of our own."""
    request = Request(f"{number}", sampling_params=Params(**params))
    token = answers.current_generation.set(Generation(engine, maker, sink, None))
    engine.output_processor.add_request(request, None)
    answers.current_generation.reset(token)


@pytest.mark.parametrize(("together", "most"), [(1, ENGINE_TOKEN), (8, TOKEN_OF_8)])
async def test_what_a_token_of_a_known_chat_costs(together: int, most: float) -> None:
    engine, frames, made = AsyncLLM(), list[bytes](), layouts()
    outgoing = Outgoing(frames.append, lambda: 0, on_refused=lambda request_id: None)
    coalescer = Coalescer(outgoing)
    coalescer.set_flush_policy(FlushPolicy(flush_seconds=0, min_tokens=together))
    for number in range(STREAMS):
        coalescer.open(number)
        idle: Any = asyncio.Event()
        answer = BodyAnswer(AnswerSink(coalescer, number, drain=idle.wait), engine, sends_ids=True)
        writer = StreamWriter(made, HttpChunk(), "chatcmpl-1", sends_ids=True)
        open_answer(engine, number, writer, answer.own)
    calls = Calls()
    for place in range(STEPS):
        outputs = [Output(f"{number}", [7]) for number in range(STREAMS)]
        with calls.counted():
            engine.output_processor.process_outputs(outputs)
            outgoing.flush()
        await asyncio.sleep(0)
        if not place:
            # The first token is noted, and leaves alone.
            calls.count = 0
    # Nothing of it comes to vLLM's own processor.
    assert engine.output_processor.seen == []
    assert len(frames) == 1 + (STEPS - 1) // together
    assert calls.count / (STREAMS * (STEPS - 1)) <= most * MARGIN


async def test_what_a_token_with_its_log_probability_costs() -> None:
    engine, frames = AsyncLLM(), list[bytes]()
    outgoing = Outgoing(frames.append, lambda: 0, on_refused=lambda request_id: None)
    coalescer = Coalescer(outgoing)
    coalescer.set_flush_policy(FlushPolicy(flush_seconds=0))
    for number in range(STREAMS):
        coalescer.open(number)
        reader = OutputReader(None, GenerateRequest("", logprobs=0))
        reader.sends_ids = True
        open_answer(engine, number, reader, coalescer.sink(number, 0), logprobs=0)
    calls = Calls()
    for place in range(STEPS):
        outputs = [Output(f"{number}", [7], lists([7])) for number in range(STREAMS)]
        with calls.counted():
            engine.output_processor.process_outputs(outputs)
            outgoing.flush()
        await asyncio.sleep(0)
        if not place:
            # Its text is decoded once.
            calls.count = 0
    assert len(frames) == STEPS
    assert calls.count / (STREAMS * (STEPS - 1)) <= LOGPROB_TOKEN * MARGIN


class Renderer:
    """Renders by a thread or without one."""

    def render_chat(self, chats: list[Any], *_: Any, **__: Any) -> Any:
        """Return chats and prompts."""
        return chats, [{"prompt_token_ids": [1]} for _ in chats]

    async def render_chat_async(self, chats: list[Any], *_: Any, **__: Any) -> Any:
        """Return the same."""
        return self.render_chat(chats)


async def test_what_a_known_chat_costs_until_it_is_a_prompt() -> None:
    chats = Chats(client_of(AsyncLLM()), Kinds())
    chats.attach(SimpleNamespace(request_logger=None, renderer=SeenRenderer(Renderer())))
    body = {
        "model": "m", "stream": True, "max_tokens": 5,
        "messages": [{"role": "user", "content": "hello"}],
    }  # fmt: skip
    asked = HttpRequest(CHATS, json.dumps(body).encode(), {"content-type": "application/json"})
    checked = check_body(asked.body, BodyBounds(), CHATS)
    first = chats.read(asked, checked)
    assert first is not None
    rendering = Rendering(("template",), {}, [])
    first.kind.template = Template(
        Params(), rendering, False, HttpChunk(), digits=16, is_short=True
    )
    calls = Calls()

    async def prompt() -> None:
        chat = chats.read(asked, checked)
        assert chat is not None
        assert chat.kind.template is not None
        found, _ = await chats.prompt(chat, chat.kind.template)
        assert found is not None

    with calls.counted():
        await asyncio.gather(*[prompt() for _ in range(STREAMS)])
    assert calls.count / STREAMS <= KNOWN_BODY * MARGIN
