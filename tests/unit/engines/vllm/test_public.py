"""Without a fast path, answers are what vLLM's public method gives."""

import asyncio
from typing import Any

import pytest

from lmi_backend.engines.vllm import bodies
from lmi_backend.engines.vllm.requests import OutputReader
from lmi_backend.generation import GenerateRequest
from lmi_backend.tokenization import unpack
from tests.support.waiting import turns
from tests.unit.engines.vllm.vllm_engine import AsyncLLM, Sink
from tests.unit.engines.vllm.vllm_parts import PROMPT, Params, Tokenizer

pytestmark = pytest.mark.usefixtures("vllm")


async def generate(engine: AsyncLLM, sink: Sink, added: list[str], **params: Any) -> dict[str, Any]:
    reader = OutputReader(Tokenizer(), GenerateRequest("", logprobs=params.get("logprobs")))
    reader.sends_ids = True
    arguments = {
        "request_id": "a", "prompt": {"prompt_token_ids": PROMPT}, "params": Params(**params),
    }  # fmt: skip

    async def note() -> None:
        added.append("added")

    await bodies.generate_publicly(
        engine, arguments, reader, sink, continuation=None, on_added=note
    )
    return arguments


@pytest.mark.parametrize("is_attached", [True, False])
async def test_each_output_is_a_delta(*, is_attached: bool) -> None:
    engine, sink, added = AsyncLLM(b"abc", is_attached=is_attached), Sink(), list[str]()
    arguments = await generate(engine, sink, added, logprobs=0)
    assert [each.text for each in sink.taken] == ["a", "b", "c"]
    assert [unpack(each.ids) for each in sink.taken] == [[[97]], [[98]], [[99]]]
    assert [each.finish_reason for each in sink.taken] == [None, None, "length"]
    assert [token.text for each in sink.taken for token in each.tokens] == ["a", "b", "c"]
    assert added
    # It may hold images.
    assert "prompt" not in arguments


async def test_a_cancelled_request_is_aborted() -> None:
    engine, sink = AsyncLLM(), Sink()
    task = asyncio.ensure_future(generate(engine, sink, []))
    await turns()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert engine.engine_core.aborted == ["a"]
