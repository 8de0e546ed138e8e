"""Messages of Anthropic's whose worker dies, or whose time ends, as its library tells its user."""

import os
import signal
from typing import Any

import anthropic
from results import KEY, URL, run

MESSAGES: Any = [{"role": "user", "content": "word"}]
client = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0)


def _ask(model: str, *, worker: int = 0) -> Any:
    text = ""
    try:
        with client.messages.stream(model=model, messages=MESSAGES, max_tokens=3000) as stream:
            for part in stream.text_stream:
                text += part
                if worker:
                    os.kill(worker, signal.SIGKILL)
                    worker = 0
        return [text, stream.get_final_message().stop_reason]
    except anthropic.APIStatusError as error:
        return [text[:4], type(error).__name__, error.status_code, error.body]


def dies() -> Any:
    return _ask("dies", worker=int(os.environ["TEST_WORKER"]))


def is_late() -> Any:
    return _ask("late")


def is_late_at_once() -> Any:
    """Without a stream nothing has come that could not be taken back."""
    try:
        client.messages.create(model="late", messages=MESSAGES, max_tokens=2000)
    except anthropic.APIStatusError as error:
        return [type(error).__name__, error.status_code, error.body]
    return None


def is_whole() -> Any:
    message = client.messages.create(model="late", messages=MESSAGES, max_tokens=3)
    return [message.content[0].text, message.stop_reason, message.usage.output_tokens]  # type: ignore[union-attr]


if __name__ == "__main__":
    run(globals())
