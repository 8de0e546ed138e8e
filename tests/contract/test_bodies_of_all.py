"""One table of what OpenAI's bodies become, for every engine that answers them."""

from typing import Any, NamedTuple

import pytest

from lmi_backend.clients.openai import CHATS, COMPLETIONS
from tests.contract.conftest import REAL_TRTLLM

pytestmark = pytest.mark.parametrize("engine", ["vllm", "transformers", "trtllm"], indirect=True)

CHAT = {"messages": [{"role": "user", "content": "What is the capital of Italy?"}]}
PROMPT = {"prompt": "The capital of Italy is"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


class Answered(NamedTuple):
    """A body that is answered, and what all engines say of it."""

    path: str
    body: dict[str, Any]
    finish: str
    tokens: int | None = None
    choices: int = 1


ANSWERED = {
    "a chat to its end": Answered(CHATS, CHAT, "stop"),
    "a chat that is cut": Answered(CHATS, CHAT | {"max_tokens": 2}, "length", 2),
    "by OpenAI's later name": Answered(CHATS, CHAT | {"max_completion_tokens": 2}, "length", 2),
    "by llama.cpp's name": Answered(
        CHATS, CHAT | {"n_predict": 2, "dry_multiplier": 0}, "length", 2
    ),
    "a prompt that is cut": Answered(COMPLETIONS, PROMPT | {"max_tokens": 1}, "length", 1),
    "two answers": Answered(
        CHATS,
        CHAT | {"n": 2, "max_tokens": 2, "temperature": 1, "ignore_eos": True},
        "length",
        4,
        2,
    ),
    "two prompts": Answered(
        COMPLETIONS, {"prompt": ["a", "b"], "max_tokens": 1, "ignore_eos": True}, "length", 2, 2
    ),
    "a prompt alone": Answered(COMPLETIONS, PROMPT | {"echo": True, "max_tokens": 0}, "length", 0),
    "an empty prompt that is shown": Answered(
        COMPLETIONS, {"prompt": ["a", ""], "echo": True, "max_tokens": 1}, "length", 2, 2
    ),
    "an empty prompt alone": Answered(
        COMPLETIONS, {"prompt": ["a", ""], "echo": True, "max_tokens": 0}, "length", 0, 2
    ),
    "a prompt's log probabilities": Answered(
        COMPLETIONS, PROMPT | {"echo": True, "max_tokens": 0, "logprobs": 1}, "length", 0
    ),
    "values that ask for nothing": Answered(
        CHATS,
        CHAT | {"max_tokens": 2, "typical_p": 1, "top_logprobs": 0, "user": "a\nb"},
        "length",
        2,
    ),
}
REFUSED = {
    "typical_p": (CHATS, CHAT | {"typical_p": 0.5}),
    "num_beams": (COMPLETIONS, PROMPT | {"num_beams": 4}),
    "best_of": (COMPLETIONS, PROMPT | {"best_of": 3}),
    "functions": (CHATS, CHAT | {"functions": [TOOL["function"]]}),
    "top_logprobs": (CHATS, CHAT | {"top_logprobs": 2}),
    "stream_options": (CHATS, CHAT | {"stream_options": {"include_usage": True}}),
    "temperature": (CHATS, CHAT | {"temperature": -1}),
    "nvext": (CHATS, CHAT | {"nvext": {"guided_choice": ["a"]}}),
    "enable_thinking": (CHATS, CHAT | {"enable_thinking": False}),
    "thinking": (CHATS, CHAT | {"thinking": {"type": "enabled"}}),
    "max_tokens": (COMPLETIONS, PROMPT | {"max_tokens": 0}),
    "messages": (CHATS, {}),
}
"""What is refused by its name."""
SERVED_BY_VLLM = {
    "tools": (CHATS, CHAT | {"tools": [TOOL], "tool_choice": "none", "max_tokens": 2})
}
"""What the others refuse by its name."""


def _ask(engine: Any, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    answer: tuple[int, Any] = engine.post(path, {"temperature": 0} | body).answer
    return answer


@pytest.mark.parametrize("name", ANSWERED)
def test_usage_and_finish_reasons_are_the_same(engine: Any, name: str) -> None:
    row = ANSWERED[name]
    # The double of TensorRT-LLM never ends by itself.
    ends = engine.plan.engine != "trtllm" or REAL_TRTLLM
    finish = row.finish if ends else "length"
    status, answer = _ask(engine, row.path, row.body)
    if engine.plan.engine == "trtllm" and "an empty prompt" in name:
        # The tokenizer of its double puts nothing before a text.
        assert (status, answer["error"]["param"]) == (400, "prompt")
        return
    assert status == 200
    assert [each["finish_reason"] for each in answer["choices"]] == [finish] * row.choices
    assert [each["index"] for each in answer["choices"]] == [*range(row.choices)]
    usage = answer["usage"]
    assert row.tokens in (None, usage["completion_tokens"])
    assert usage["prompt_tokens"] > 0
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


@pytest.mark.parametrize("field", [*REFUSED, *SERVED_BY_VLLM])
def test_what_is_not_served_is_refused_by_its_name(engine: Any, field: str) -> None:
    path, body = (REFUSED | SERVED_BY_VLLM)[field]
    status, answer = _ask(engine, path, body)
    if field in SERVED_BY_VLLM and engine.plan.engine == "vllm":
        assert status == 200
        return
    assert status == 400
    assert field in f"{answer['error']['param']} {answer['error']['message']}"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": "a", "n": 2}),
        ("/v1/messages", CHAT | {"model": "lmi", "max_tokens": 2, "seed": 5}),
    ],
)
def test_what_a_path_of_vllm_does_not_read_is_refused(
    engine: Any, path: str, body: dict[str, Any]
) -> None:
    status, answer = _ask(engine, path, body)
    if engine.plan.engine != "vllm":
        # It has no such path.
        assert status == 404
        return
    assert (status, answer["error"]["param"]) == (400, [*body][-1])
