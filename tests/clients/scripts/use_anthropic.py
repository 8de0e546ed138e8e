"""The `anthropic` package."""

from typing import Any

import anthropic
from results import KEY, MODEL, URL, run

client = anthropic.Anthropic(base_url=URL, api_key=KEY)
IDS = {"X-LMI-Resumable": "1"}
"""Its streams have ids of events, which must change nothing here."""
ASKED: Any = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "What is the capital of Italy?"}],
    "max_tokens": 50,
    # No argument of its own for it.
    "extra_body": {"temperature": 0},
}


def message() -> Any:
    answer = client.messages.create(**ASKED)
    return [answer.content[0].text, answer.stop_reason, answer.usage.output_tokens, answer.role]


def streamed() -> Any:
    with client.messages.stream(**ASKED, extra_headers=IDS) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    return [text, final.stop_reason, final.usage.output_tokens]


def events() -> Any:
    kinds = [event.type for event in client.messages.create(**ASKED, stream=True)]
    return [kinds[0], kinds[-1], sorted(set(kinds))]


def count() -> Any:
    asked = {name: ASKED[name] for name in ("model", "messages")}
    return client.messages.count_tokens(**asked).input_tokens


CASES = {
    "unknown_model": lambda: client.messages.create(**(ASKED | {"model": "none"})).id,
    "bad_value": lambda: client.messages.create(**(ASKED | {"max_tokens": -1})).id,
    "wrong_key": lambda: client.with_options(api_key="wrong").messages.create(**ASKED).id,
}

if __name__ == "__main__":
    run(globals() | CASES)
