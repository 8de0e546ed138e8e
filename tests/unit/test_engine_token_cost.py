"""What a token of a known chat costs the worker from vLLM's output on, counted as in test_cost."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec

from lmi_backend.engines.vllm.inside.new_tokens import NewTokens
from lmi_backend.engines.vllm.inside.output_hook import _OutputHook
from lmi_backend.ipc.flush_policy import FlushPolicy
from lmi_backend.worker.coalescer import AnswerSink, Coalescer
from lmi_backend.worker.outgoing import Outgoing
from tests.unit.engines.vllm.inside.test_streamed_chat import layouts, output, writer
from tests.unit.test_cost import MARGIN, STEPS, STREAMS, Calls

ENGINE_TOKEN = 31.8
"""Calls of functions, vLLM's detokeniser left out."""


class Output(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """An EngineCoreOutput of vLLM's, as far as it matters here."""

    request_id: str
    new_token_ids: list[int]
    new_logprobs: Any = None
    finish_reason: str | None = None


def _state() -> Any:
    detokenizer = SimpleNamespace(
        stop=[], update=lambda ids, stops: None, get_next_output_text=lambda **_: "word "
    )
    return SimpleNamespace(detokenizer=detokenizer, make_request_output=None)


async def test_what_a_token_of_a_known_chat_costs() -> None:
    processor = SimpleNamespace(
        log_stats=False, request_states={}, process_outputs=lambda outputs: None
    )
    NewTokens(SimpleNamespace(output_processor=processor), Output("", [])).attach()
    frames: list[bytes] = []
    outgoing = Outgoing(frames.append, lambda: 0, on_refused=lambda request_id: None)
    coalescer = Coalescer(outgoing)
    coalescer.set_flush_policy(FlushPolicy(flush_seconds=0))
    made = layouts()
    for number in range(STREAMS):
        coalescer.open(number)
        state = processor.request_states[f"{number}"] = _state()
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
    assert len(frames) == STEPS
    assert calls.count / (STREAMS * (STEPS - 1)) <= ENGINE_TOKEN * MARGIN
