"""`outlines`, over vLLM's server and Text Generation Inference's."""

import json
from typing import Any, Literal

import huggingface_hub
import openai
import outlines
from cities import City
from results import KEY, MODEL, URL, run

QUESTION = "What is the capital of Italy?"
client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY)


def _vllm() -> Any:
    return outlines.from_vllm(client, MODEL)


def _tgi() -> Any:
    headers = {"X-Amzn-SageMaker-Target-Model": MODEL}
    return outlines.from_tgi(huggingface_hub.InferenceClient(URL, token=KEY, headers=headers))


CASES = {
    "text": lambda: _vllm()(QUESTION, temperature=0),
    "streamed": lambda: "".join(_vllm().stream(QUESTION, temperature=0)),
    "choice": lambda: _vllm()(QUESTION, Literal["Rome", "Oslo"], temperature=0) in ("Rome", "Oslo"),
    "regex": lambda: _vllm()(QUESTION, outlines.regex("[0-9]{3}"), temperature=0).isdigit(),
    "structured": lambda: json.loads(_vllm()(QUESTION, City, temperature=0)),
    "openai_structured": lambda: json.loads(
        outlines.from_openai(client, MODEL)(QUESTION, City, temperature=0)
    ),
    "tgi_regex": lambda: _tgi()("The capital of Italy is", outlines.regex("[0-9]{3}")).isdigit(),
    "tgi_structured": lambda: json.loads(_tgi()("The capital of Italy is", City)),
}

if __name__ == "__main__":
    run(globals() | CASES)
