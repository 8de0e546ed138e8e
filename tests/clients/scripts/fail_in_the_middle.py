"""Streams that fail in the middle, as each client's own library tells its user."""

import json
from typing import Any

import anthropic
import boto3
import openai
from botocore.config import Config
from huggingface_hub import InferenceClient
from results import KEY, MODEL, URL, run

QUESTION: Any = [{"role": "user", "content": "What is the capital of Italy?"}]
ANTHROPIC: Any = {"model": MODEL, "messages": QUESTION, "max_tokens": 50}
of_openai = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)
of_anthropic = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0)
of_hugging_face = InferenceClient(URL, token=KEY, headers={"x-amzn-sagemaker-target-model": MODEL})
of_amazon = boto3.client(
    "sagemaker-runtime",
    region_name="us-east-1",
    endpoint_url=URL,
    aws_access_key_id=KEY,
    aws_secret_access_key="any",
    config=Config(retries={"max_attempts": 1}),
)
LMI = {"inputs": "a", "stream": True, "parameters": {"max_new_tokens": 9}}
RAW = {"inputs": "a", "stream": True, "parameters": {"output_formatter": "none"}}


def openai_chat_helper() -> Any:
    with of_openai.chat.completions.stream(model=MODEL, messages=QUESTION) as stream:
        return list(stream)


def openai_responses_helper() -> Any:
    with of_openai.responses.stream(model=MODEL, input="a") as stream:
        return list(stream)


def anthropic_stream() -> Any:
    with of_anthropic.messages.stream(**ANTHROPIC) as stream:
        return stream.get_final_text()


def _amazon_events(body: Any) -> Any:
    answer = of_amazon.invoke_endpoint_with_response_stream(
        EndpointName=MODEL, Body=json.dumps(body).encode()
    )
    return len(list(answer["Body"]))


def _amazon(body: Any) -> Any:
    answer = of_amazon.invoke_endpoint(EndpointName=MODEL, Body=json.dumps(body).encode())
    return answer["Body"].read().decode()


def anthropic_late() -> Any:
    with of_anthropic.messages.stream(**(ANTHROPIC | {"max_tokens": 8888})) as stream:
        return stream.get_final_text()


CASES = {
    "openai_chat": lambda: list(
        of_openai.chat.completions.create(model=MODEL, messages=QUESTION, stream=True)
    ),
    "openai_completion": lambda: list(
        of_openai.completions.create(model=MODEL, prompt="a", stream=True)
    ),
    "openai_responses": lambda: list(
        of_openai.responses.create(model=MODEL, input="a", stream=True)
    ),
    "openai_full": lambda: (
        of_openai.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=7777).id
    ),
    "anthropic_full": lambda: of_anthropic.messages.create(**(ANTHROPIC | {"max_tokens": 7777})).id,
    "anthropic_create": lambda: list(of_anthropic.messages.create(**ANTHROPIC, stream=True)),
    "hugging_face_text": lambda: list(of_hugging_face.text_generation("a", stream=True)),
    "hugging_face_chat": lambda: list(
        of_hugging_face.chat_completion(QUESTION, model=MODEL, stream=True)
    ),
    "amazon_events": lambda: _amazon_events(LMI),
    "amazon_raw_events": lambda: _amazon_events(RAW),
    "amazon_lines": lambda: _amazon(LMI),
    "amazon_raw": lambda: _amazon(RAW),
}

if __name__ == "__main__":
    run(globals() | CASES)
