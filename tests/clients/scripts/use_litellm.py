"""`litellm`: its providers openai and sagemaker, and what it makes of errors."""

from typing import Any

import litellm
from results import KEY, MODEL, URL, run

CHAT = [{"role": "user", "content": "What is the capital of Italy?"}]
OPENAI: Any = {
    "model": f"openai/{MODEL}",
    "api_base": f"{URL}/v1",
    "api_key": KEY,
    "temperature": 0,
}
AWS: Any = {
    "aws_access_key_id": KEY,
    "aws_secret_access_key": "any",
    "aws_region_name": "us-east-1",
}
INVOKE = f"{URL}/endpoints/{MODEL}/invocations"
STREAMED = {"sagemaker_base_url": f"{INVOKE}-response-stream", "stream": True}
SAGEMAKER: Any = AWS | {"model": f"sagemaker/{MODEL}", "sagemaker_base_url": INVOKE}
CHATS: Any = SAGEMAKER | {"model": f"sagemaker_chat/{MODEL}", "temperature": 0}


def _chat(asked: dict[str, Any], **more: Any) -> Any:
    answer: Any = litellm.completion(messages=CHAT, **(asked | more))
    if "stream" in asked | more:
        return "".join(each.choices[0].delta.content or "" for each in answer if each.choices)
    return answer.choices[0].message.content


def chat() -> Any:
    answer: Any = litellm.completion(messages=CHAT, **OPENAI)
    return [answer.choices[0].message.content, answer.usage.completion_tokens > 3]


def text_completion() -> Any:
    answer: Any = litellm.text_completion(prompt="The capital of Italy is", **OPENAI)
    return answer.choices[0].text


CASES = {
    "chat_streamed": lambda: _chat(OPENAI, stream=True),
    "hosted_vllm": lambda: _chat(OPENAI, model=f"hosted_vllm/{MODEL}"),
    "anthropic": lambda: _chat(OPENAI, model=f"anthropic/{MODEL}", api_base=URL, max_tokens=50),
    "sagemaker": lambda: bool(_chat(SAGEMAKER, max_tokens=8)),
    "sagemaker_streamed": lambda: bool(_chat(SAGEMAKER | STREAMED, max_tokens=8)),
    "sagemaker_chat": lambda: _chat(CHATS),
    "sagemaker_chat_streamed": lambda: _chat(CHATS | STREAMED),
    "unknown_model": lambda: _chat(OPENAI, model="openai/none"),
    "bad_value": lambda: _chat(OPENAI, temperature=-1),
    "wrong_key": lambda: _chat(OPENAI, api_key="wrong"),
}

if __name__ == "__main__":
    run(globals() | CASES)
