"""`outlines`, over vLLM's server and Text Generation Inference's."""

import json
from typing import Any, Literal

import huggingface_hub
import openai
import outlines
from pydantic import BaseModel
from results import KEY, MODEL, URL, run

QUESTION = "What is the capital of Italy?"
client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY)


class City(BaseModel):
    city: Literal["Rome"]


def _vllm() -> Any:
    return outlines.from_vllm(client, MODEL)


def _tgi() -> Any:
    headers = {"X-Amzn-SageMaker-Target-Model": MODEL}
    return outlines.from_tgi(huggingface_hub.InferenceClient(URL, token=KEY, headers=headers))


def text() -> Any:
    return _vllm()(QUESTION, temperature=0)


def streamed() -> Any:
    return "".join(_vllm().stream(QUESTION, temperature=0))


def choice() -> Any:
    return _vllm()(QUESTION, Literal["Rome", "Oslo"], temperature=0) in ("Rome", "Oslo")


def regex() -> Any:
    return _vllm()(QUESTION, outlines.regex("[0-9]{3}"), temperature=0).isdigit()


def structured() -> Any:
    return json.loads(_vllm()(QUESTION, City, temperature=0))


def openai_structured() -> Any:
    return json.loads(outlines.from_openai(client, MODEL)(QUESTION, City, temperature=0))


def tgi_regex() -> Any:
    return _tgi()("The capital of Italy is", outlines.regex("[0-9]{3}")).isdigit()


def tgi_structured() -> Any:
    return json.loads(_tgi()("The capital of Italy is", City))


if __name__ == "__main__":
    run(globals())
