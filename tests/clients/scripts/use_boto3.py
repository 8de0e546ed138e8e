"""`boto3`'s sagemaker-runtime."""

import json
from collections.abc import Callable
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError
from results import KEY, MODEL, URL, run

client = boto3.client(
    "sagemaker-runtime",
    region_name="us-east-1",
    endpoint_url=URL,
    aws_access_key_id=KEY,
    aws_secret_access_key="any",
    config=Config(retries={"max_attempts": 1}),
)
LMI = {"inputs": "The capital of Italy is", "parameters": {"max_new_tokens": 20}}
CHAT = {
    "messages": [{"role": "user", "content": "What is the capital of Italy?"}],
    "temperature": 0,
}


def _invoke(body: Any, **more: Any) -> Any:
    named = {"EndpointName": "my-endpoint", "TargetModel": MODEL, "ContentType": "application/json"}
    return client.invoke_endpoint(**(named | more), Body=json.dumps(body).encode())


def _answer(**named: Any) -> Any:
    answer = client.invoke_endpoint(Body=json.dumps(LMI).encode(), **named)
    return json.loads(answer["Body"].read())


def _stream(body: Any, **more: Any) -> tuple[str, str, int]:
    named = {"EndpointName": MODEL, "ContentType": "application/json"}
    answer = client.invoke_endpoint_with_response_stream(
        **(named | more), Body=json.dumps(body).encode()
    )
    parts = [event["PayloadPart"]["Bytes"].decode() for event in answer["Body"]]
    return answer["ContentType"], "".join(parts), len(parts)


def _refused(call: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Return what the error of a call says."""
    try:
        call(*given, **named)
    except (ClientError, EventStreamError) as error:
        response = error.response
        kept = ("OriginalStatusCode", "OriginalMessage")
        status = response["ResponseMetadata"]["HTTPStatusCode"]
        return [response["Error"]["Code"], status, {name: response.get(name) for name in kept}]
    return None


def lmi() -> Any:
    answer = _invoke(LMI)
    variant = answer["InvokedProductionVariant"]
    return [answer["ContentType"], json.loads(answer["Body"].read()), variant]


def chat() -> Any:
    answer = json.loads(_invoke(CHAT, ContentType="application/octet-stream")["Body"].read())
    return answer["choices"][0]["message"]["content"]


def lmi_streamed() -> Any:
    kind, text, _ = _stream(LMI | {"stream": True})
    return [kind, [json.loads(line) for line in text.splitlines()][-1]["generated_text"]]


def long_streamed() -> Any:
    parameters = {"max_new_tokens": 600, "ignore_eos_token": True}
    *_, parts = _stream({"inputs": "Tell a story:", "parameters": parameters, "stream": True})
    return parts


def lmi_not_streamed() -> Any:
    kind, text, _ = _stream(LMI)
    return [kind, json.loads(text)]


def chat_streamed() -> Any:
    kind, text, _ = _stream(CHAT | {"stream": True}, Accept="text/event-stream")
    *events, end = [line[6:] for line in text.splitlines() if line]
    parts = [json.loads(event)["choices"][0]["delta"].get("content") or "" for event in events]
    return [kind, "".join(parts), end]


def wrong_key() -> Any:
    other = boto3.client(
        "sagemaker-runtime",
        region_name="us-east-1",
        endpoint_url=URL,
        aws_access_key_id="wrong",
        aws_secret_access_key="any",
    )
    return _refused(other.invoke_endpoint, EndpointName=MODEL, Body=b"{}")[:2]


COMPONENT = {"EndpointName": "my-endpoint", "InferenceComponentName": MODEL, "Accept": "*/*"}
CASES = {
    "endpoint_is_the_model": lambda: _answer(EndpointName=MODEL),
    "target_model_file": lambda: _answer(EndpointName="my-endpoint", TargetModel=f"{MODEL}.tar.gz"),
    "inference_component": lambda: _answer(**COMPONENT),
    "unknown_endpoint": lambda: _refused(_answer, EndpointName="none"),
    "wrong_body": lambda: _refused(_invoke, {"inputs": 7}),
    "wrong_chat": lambda: _refused(_invoke, CHAT | {"temperature": -1}),
    "wrong_streamed": lambda: _refused(_stream, {"inputs": 7, "stream": True}),
}

if __name__ == "__main__":
    run(globals() | CASES)
