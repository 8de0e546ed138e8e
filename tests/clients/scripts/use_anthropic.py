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


def _raised(**more: Any) -> Any:
    try:
        client.messages.create(**(ASKED | more))
    except anthropic.APIStatusError as error:
        return [type(error).__name__, error.status_code, error.body]
    return None


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


def unknown_model() -> Any:
    return _raised(model="none")


def bad_value() -> Any:
    return _raised(max_tokens=-1)


def wrong_key() -> Any:
    try:
        client.with_options(api_key="wrong").messages.create(**ASKED)
    except anthropic.AuthenticationError as error:
        return [error.status_code, error.body]
    return None


if __name__ == "__main__":
    run(globals())
