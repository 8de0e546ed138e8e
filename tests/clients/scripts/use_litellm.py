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
STREAM = f"{INVOKE}-response-stream"


def _text(stream: Any) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def chat() -> Any:
    answer: Any = litellm.completion(messages=CHAT, **OPENAI)
    return [answer.choices[0].message.content, answer.usage.completion_tokens > 3]


def chat_streamed() -> Any:
    return _text(litellm.completion(messages=CHAT, stream=True, **OPENAI))


def text_completion() -> Any:
    answer: Any = litellm.text_completion(prompt="The capital of Italy is", **OPENAI)
    return answer.choices[0].text


def hosted_vllm() -> Any:
    named = OPENAI | {"model": f"hosted_vllm/{MODEL}"}
    answer: Any = litellm.completion(messages=CHAT, **named)
    return answer.choices[0].message.content


def anthropic() -> Any:
    named = OPENAI | {"model": f"anthropic/{MODEL}", "api_base": URL}
    answer: Any = litellm.completion(messages=CHAT, max_tokens=50, **named)
    return answer.choices[0].message.content


def sagemaker() -> Any:
    answer: Any = litellm.completion(
        model=f"sagemaker/{MODEL}", messages=CHAT, sagemaker_base_url=INVOKE, max_tokens=8, **AWS
    )
    return bool(answer.choices[0].message.content)


def sagemaker_streamed() -> Any:
    stream = litellm.completion(
        model=f"sagemaker/{MODEL}",
        messages=CHAT,
        sagemaker_base_url=STREAM,
        max_tokens=8,
        stream=True,
        **AWS,
    )
    return bool(_text(stream))


def sagemaker_chat() -> Any:
    answer: Any = litellm.completion(
        model=f"sagemaker_chat/{MODEL}",
        messages=CHAT,
        sagemaker_base_url=INVOKE,
        temperature=0,
        **AWS,
    )
    return answer.choices[0].message.content


def sagemaker_chat_streamed() -> Any:
    stream = litellm.completion(
        model=f"sagemaker_chat/{MODEL}",
        messages=CHAT,
        sagemaker_base_url=STREAM,
        temperature=0,
        stream=True,
        **AWS,
    )
    return _text(stream)


def unknown_model() -> Any:
    return litellm.completion(messages=CHAT, **(OPENAI | {"model": "openai/none"}))


def bad_value() -> Any:
    return litellm.completion(messages=CHAT, **(OPENAI | {"temperature": -1}))


def wrong_key() -> Any:
    return litellm.completion(messages=CHAT, **(OPENAI | {"api_key": "wrong"}))


if __name__ == "__main__":
    run(globals())
