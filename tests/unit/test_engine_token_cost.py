"""What a known chat and a token of it cost the worker beside vLLM, counted as in test_cost."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lmi_backend.engines.vllm.inside import fast_paths, names, packed_logprobs
from lmi_backend.engines.vllm.inside.new_tokens import NewTokens
from lmi_backend.engines.vllm.inside.output_hook import _OutputHook
from lmi_backend.engines.vllm.inside.outputs import OutputReader
from lmi_backend.engines.vllm.inside.token_texts import TokenTexts
from lmi_backend.generation import GenerateRequest, HttpRequest
from lmi_backend.ipc.flush_policy import FlushPolicy
from lmi_backend.worker.coalescer import AnswerSink, Coalescer
from lmi_backend.worker.outgoing import Outgoing
from tests.unit.engines.vllm.inside.test_known_chats import (
    BODY,
    PATH,
    Renderer,
    known_chats,
    learnt,
)
from tests.unit.engines.vllm.inside.test_packed_logprobs import engine_of, lists, step
from tests.unit.engines.vllm.inside.test_streamed_chat import layouts, output, writer
from tests.unit.test_cost import MARGIN, STEPS, STREAMS, Calls

ENGINE_TOKEN, TOKEN_OF_8 = 26.8, 7.1
"""Calls of functions that a token costs which is an event, and one of eight that share an event;
vLLM's detokeniser is left out."""
LOGPROB_TOKEN = 39.8
"""The same of a token with its log probability, which is alone."""
KNOWN_BODY = 133
"""Of a body of a known kind, until it is a prompt; vLLM's renderer left out."""


class Output(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """An EngineCoreOutput of vLLM's, as far as it matters here."""

    request_id: str
    new_token_ids: list[int]
    new_logprobs: Any = None
    finish_reason: str | None = None


def _state(interval: int) -> Any:
    detokenizer = SimpleNamespace(
        stop=[],
        update=lambda ids, stops: None,
        get_next_output_text=lambda **_: "word ",
        output_token_ids=[],
    )
    return SimpleNamespace(
        detokenizer=detokenizer,
        make_request_output=None,
        stream_interval=interval,
        sent_tokens_offset=0,
    )


@pytest.mark.parametrize(("together", "most"), [(1, ENGINE_TOKEN), (8, TOKEN_OF_8)])
async def test_what_a_token_of_a_known_chat_costs(together: int, most: float) -> None:
    processor = SimpleNamespace(
        log_stats=False, request_states={}, process_outputs=lambda outputs: None
    )
    NewTokens(SimpleNamespace(output_processor=processor), Output("", [])).attach()
    frames: list[bytes] = []
    outgoing = Outgoing(frames.append, lambda: 0, on_refused=lambda request_id: None)
    coalescer = Coalescer(outgoing)
    coalescer.set_flush_policy(FlushPolicy(flush_seconds=0, min_tokens=together))
    made = layouts()
    for number in range(STREAMS):
        coalescer.open(number)
        state = processor.request_states[f"{number}"] = _state(together)
        sink: Any = AnswerSink(coalescer, number, drain=asyncio.Event().wait)
        chat = writer(made)
        _OutputHook(chat, sink).attach(state)
        for chunk in chat.deltas(output("word ", [7])):
            sink.take(chunk)
    outgoing.flush()
    calls = Calls()
    for _ in range(STEPS):
        outputs = [Output(f"{number}", [7]) for number in range(STREAMS)]
        with calls.counted():
            processor.process_outputs(outputs)
            outgoing.flush()
        await asyncio.sleep(0)
    # vLLM sees the first output of each request here, and notes what it notes with it.
    assert len(frames) == 1 + (STEPS - 1) // together
    assert calls.count / (STREAMS * (STEPS - 1)) <= most * MARGIN


async def test_what_a_token_with_its_log_probability_costs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vllm = engine_of(monkeypatch)
    texts = TokenTexts(lambda _, ids: ["word "] * len(ids), vocabulary=10)
    module = SimpleNamespace(convert_ids_list_to_tokens=texts)
    monkeypatch.setitem(vars(names), "logprobs", module)
    texts(module, [7])
    processor = vllm.output_processor
    processor.log_stats, processor.request_states = False, {}
    packed_logprobs.attach(vllm)
    packed: Any = packed_logprobs.in_use()
    NewTokens(vllm, packed.output("", [])).attach()
    outgoing = Outgoing(lambda frame: None, lambda: 0, on_refused=lambda request_id: None)
    coalescer = Coalescer(outgoing)
    coalescer.set_flush_policy(FlushPolicy(flush_seconds=0))
    for number in range(STREAMS):
        coalescer.open(number)
        state = processor.request_states[f"{number}"] = _state(1)
        state.logprobs_processor = SimpleNamespace(
            logprobs=[], cumulative_logprob=0.0, num_logprobs=0, tokenizer=module
        )
        reader = OutputReader(None, GenerateRequest("", logprobs=0))
        reader.sends_ids = True
        _OutputHook(reader, coalescer.sink(number, 0)).attach(state)
    calls = Calls()
    for place in range(STEPS):
        outputs = step(vllm, *[lists([[7]])] * STREAMS)
        with calls.counted():
            processor.process_outputs(outputs)
            outgoing.flush()
        await asyncio.sleep(0)
        if not place:
            # vLLM sees the first output of each, and notes what it notes with it.
            assert len(processor.given) == STREAMS
            calls.count = 0
    assert len(processor.given) == STREAMS
    assert calls.count / (STREAMS * (STEPS - 1)) <= LOGPROB_TOKEN * MARGIN


class AtOnce(Renderer):
    """Renders without a thread too."""

    def render_chat(self, chats: list[Any], *_: Any, **__: Any) -> Any:
        """Return chats and prompts."""
        return chats, [{"prompt_token_ids": [1]} for _ in chats]


async def test_what_a_known_chat_costs_until_it_is_a_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})
    monkeypatch.setitem(vars(names), "current_platform", SimpleNamespace())
    chats = known_chats(AtOnce())
    asked = HttpRequest(PATH, json.dumps(BODY).encode(), {"content-type": "application/json"})
    kind = chats.recall(asked, 1000)
    assert kind is None
    (kind,) = chats._kinds.values()
    kind.learnt, kind.is_known, kind.is_checked = learnt(is_same_when_short=True), True, True
    calls = Calls()

    async def prompt() -> None:
        chat = chats.recall(asked, 1000)
        assert chat is not None
        assert chat.kind.learnt is not None
        await chats._prompt(chat, chat.kind.learnt)

    with calls.counted():
        await asyncio.gather(*[prompt() for _ in range(STREAMS)])
    assert calls.count / STREAMS <= KNOWN_BODY * MARGIN
