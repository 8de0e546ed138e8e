"""Events of one stream tell how those of others are written, and nothing is guessed."""

import json
from typing import Any

import pytest

from lmi_backend.engines.vllm.layouts import (
    CHAT_TEXT,
    DONE,
    Place,
    StreamLayouts,
)
from tests.unit.engines.vllm.vllm_server import SAMPLES, STREAM, chat_event, event, usage_event

OTHER = {"id": 'chatcmpl-"\\née', "created": 1700000000}
COUNTS = (11, len(SAMPLES))


def chat(stream: Any = STREAM) -> list[bytes]:
    texts = [chat_event(stream, {"content": each.text}, each.finish_reason) for each in SAMPLES]
    role = chat_event(stream, {"role": "assistant", "content": ""})
    made = [role, *texts, usage_event(stream, *COUNTS)]
    return [*(each.encode() for each in made), DONE]


def of(events: list[bytes], gap: Place = CHAT_TEXT) -> StreamLayouts | None:
    return StreamLayouts.of(events, SAMPLES, COUNTS, gap)


@pytest.mark.parametrize(
    "text", ["", "a", '"\\', "\n\t\x00\x1f\x7f", "東京 🗼\u2028", "</b>\ufffd"]
)
def test_other_events_of_chats_are_written_as_the_server_would(text: str) -> None:
    found = of(chat())
    assert found is not None
    assert found == of(chat(OTHER))
    assert found.role is not None
    assert found.usage is not None
    assert found.role.event(OTHER) == chat(OTHER)[0]
    middle = chat_event(OTHER, {"content": text})
    assert found.middle.event(OTHER | {"new": text}) == middle.encode()
    ends = {"finish_reason": "length", "stop_reason": text}
    last = chat_event(OTHER, {"content": text}, "length", text)
    assert found.last.event(OTHER | ends | {"new": text}) == last.encode()
    counts = {"prompt_tokens": 700, "completion_tokens": 1, "total_tokens": 701}
    assert found.usage.event(OTHER | counts) == usage_event(OTHER, 700, 1).encode()


GOOD = chat()


def with_more(place: int, **more: Any) -> list[bytes]:
    """Return events, of which one has more members."""
    value = json.loads(GOOD[place].removeprefix(b"data: ")) | more
    return [*GOOD[:place], event(value).encode(), *GOOD[place + 1 :]]


def with_choice(place: int, **more: Any) -> list[bytes]:
    choice = json.loads(GOOD[place].removeprefix(b"data: "))["choices"][0]
    return with_more(place, choices=[choice | more])


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([], id="none"),
        pytest.param(GOOD[:-1], id="no end"),
        pytest.param([*GOOD[:-1], b"data: [END]\n\n"], id="another end"),
        pytest.param([*GOOD, DONE], id="one event more"),
        pytest.param(GOOD[1:], id="no role"),
        pytest.param([GOOD[0], GOOD[2], GOOD[1], *GOOD[3:]], id="another order"),
        pytest.param([*GOOD[:4], usage_event(STREAM, 11, 4).encode(), DONE], id="other counts"),
        pytest.param(with_more(2, usage={"prompt_tokens": 11}), id="usage in each event"),
        pytest.param(with_more(4, metrics={"seconds": 0.1}), id="a further count"),
        pytest.param(with_more(1, weight=3), id="a number that nobody knows"),
        pytest.param(with_more(2, id="chatcmpl-2"), id="another id"),
        pytest.param(with_choice(1, logprobs={"content": [1]}), id="log probabilities"),
        pytest.param(with_choice(1, token_ids=[1]), id="ids"),
        pytest.param(with_choice(2, delta={"content": "b", "reasoning": "x"}), id="another text"),
        pytest.param(with_choice(3, finish_reason="length"), id="another reason"),
        pytest.param(with_choice(3, stop_reason="c"), id="another stop reason"),
        pytest.param([GOOD[0], GOOD[1].replace(b":", b": ", 3), *GOOD[2:]], id="other spaces"),
        pytest.param([GOOD[0], b": ping\n\n", *GOOD[2:]], id="a comment"),
        pytest.param([GOOD[0], b"data: {\n\n", *GOOD[2:]], id="no JSON"),
    ],
)
def test_what_tells_more_or_less_has_no_layout(events: list[bytes]) -> None:
    assert of(GOOD) is not None
    assert of(events) is None
