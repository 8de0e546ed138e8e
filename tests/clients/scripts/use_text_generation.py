"""`text-generation`, the client of Text Generation Inference."""

import asyncio
from typing import Any

import text_generation
from results import KEY, MODEL, URL, run
from text_generation.types import Grammar, GrammarType

PROMPT = "The capital of Italy is"
HEADERS = {"Authorization": f"Bearer {KEY}", "X-Amzn-SageMaker-Target-Model": MODEL}
client = text_generation.Client(URL, headers=HEADERS, timeout=120)


def generate() -> Any:
    answer = client.generate(PROMPT, max_new_tokens=20)
    assert answer.details is not None
    return [answer.generated_text, answer.details.finish_reason.value]


def streamed() -> Any:
    pieces = list(client.generate_stream(PROMPT, max_new_tokens=20))
    text = "".join(piece.token.text for piece in pieces if not piece.token.special)
    return [text, pieces[-1].generated_text]


def asynchronous() -> Any:
    own = text_generation.AsyncClient(URL, headers=HEADERS, timeout=120)
    return asyncio.run(own.generate(PROMPT, max_new_tokens=20)).generated_text


def grammar() -> Any:
    regex = Grammar(type=GrammarType.Regex, value="[0-9]{3}")
    text = client.generate(PROMPT, max_new_tokens=20, grammar=regex).generated_text
    return [len(text), text.isdigit()]


def unknown_model() -> Any:
    own = text_generation.Client(URL, headers=HEADERS | {"X-Amzn-SageMaker-Target-Model": "none"})
    return own.generate(PROMPT).generated_text


if __name__ == "__main__":
    run(globals())
