"""Messages of Anthropic's whose last one is the assistant's."""

from typing import Any

import pytest

from tests.support.interpreter.releases import vllm_release

pytestmark = [
    pytest.mark.parametrize("engine", ["vllm"], indirect=True),
    pytest.mark.skipif(vllm_release() < (0, 30), reason="an older vLLM makes chats otherwise"),
]

BEGUN = "The capital of"
ASKED = {"role": "user", "content": "What is the capital of Italy?"}


def ask(engine: Any, path: str, **body: Any) -> Any:
    status, answer = engine.post(path, {"model": "lmi"} | body).answer
    assert status == 200
    return answer


@pytest.mark.parametrize("content", [BEGUN, [{"type": "text", "text": BEGUN}]])
def test_the_assistants_last_message_is_continued(engine: Any, content: Any) -> None:
    messages = [ASKED, {"role": "assistant", "content": content}]
    answer = ask(engine, "/v1/messages", messages=messages, temperature=0, max_tokens=20)
    assert answer["content"] == [{"type": "text", "text": " Italy is Rome."}]
    # Its prompt ends with that message, whose end is not told.
    counted = ask(engine, "/v1/messages/count_tokens", messages=messages)
    assert counted["input_tokens"] == answer["usage"]["input_tokens"]
    chat = ask(
        engine,
        "/v1/chat/completions",
        messages=messages,
        add_generation_prompt=False,
        continue_final_message=True,
        max_tokens=1,
    )
    assert chat["usage"]["prompt_tokens"] == answer["usage"]["input_tokens"]


def test_a_message_after_it_is_answered(engine: Any) -> None:
    messages = [ASKED, {"role": "assistant", "content": BEGUN}, ASKED]
    answer = ask(engine, "/v1/messages", messages=messages, temperature=0, max_tokens=20)
    assert answer["content"][0]["text"].startswith("The capital of")
