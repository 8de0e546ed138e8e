"""What is looked at before the engine gets a request of vLLM's server, and what is counted."""

from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm.bodies import BodyAnswer, current_answer
from lmi_backend.generation import Continuation
from lmi_backend.tokenization import pack
from tests.unit.engines.vllm.vllm_engine import AsyncLLM, Sink, client_of
from tests.unit.engines.vllm.vllm_parts import (
    PROMPT,
    ClientError,
    Params,
)

pytestmark = pytest.mark.usefixtures("vllm")

PROMPT_OF: Any = {"prompt_token_ids": PROMPT}


def answering(engine: AsyncLLM, **more: Any) -> BodyAnswer:
    answer = BodyAnswer(Sink(), engine, sends_ids=True, **more)
    current_answer.set(answer)
    return answer


async def ids(outputs: Any) -> list[int]:
    return [token async for output in outputs for token in output.outputs[0].token_ids]


async def test_a_call_that_is_closed_is_aborted() -> None:
    engine = AsyncLLM(b"abc")
    outputs = client_of(engine).generate(PROMPT_OF, Params(), "a")
    await anext(outputs)
    await outputs.aclose()
    assert engine.engine_core.aborted == ["a"]


async def test_a_resumed_answer_begins_with_what_its_client_has() -> None:
    engine = AsyncLLM(b"abcd")
    known = Continuation(pack([97]) + pack([98]))
    answer = answering(engine, continuation=known)
    assert await ids(client_of(engine).generate(PROMPT_OF, Params(), "a")) == [*b"abcd"]
    assert (answer.generated_tokens, answer.ids) == (4, pack([99]) + pack([100]))


@pytest.mark.parametrize(
    "params",
    [
        {"extra_args": {"kv_transfer_params": "text"}},
        {"structured_outputs": SimpleNamespace(json={"type": "object"}, regex="(" * 100_000)},
    ],
)
async def test_what_may_end_the_core_is_refused_before(params: dict[str, Any]) -> None:
    engine = AsyncLLM(b"abc")
    with pytest.raises(ClientError):
        await ids(client_of(engine).generate(PROMPT_OF, Params(**params), "a"))
    assert engine.engine_core.added == []


async def test_an_adapter_that_nobody_has_looked_at_is_refused() -> None:
    engine = AsyncLLM(b"abc")
    named = {"lora_request": SimpleNamespace(lora_name="red")}
    client = client_of(engine)
    with pytest.raises(ClientError, match="cannot be read before"):
        await ids(client.generate(PROMPT_OF, Params(), "a", **named))
    with pytest.raises(ClientError, match="cannot be read before"):
        client.encode(PROMPT_OF, **named)
    assert engine.engine_core.added == []


def test_the_rest_of_the_engine_is_the_engines() -> None:
    engine = AsyncLLM()
    assert client_of(engine).model_config is engine.model_config
