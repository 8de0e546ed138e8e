"""Events of one stream tell how those of others are written, and nothing is guessed."""

import json
from typing import Any

import pytest

from lmi_backend.engines.vllm.inside.event_layouts import (
    DONE,
    STREAM,
    TEXT,
    ChatLayouts,
    EventLayout,
    TextOutput,
)

STREAMS = ({"id": "chatcmpl-1", "created": 1}, {"id": 'chatcmpl-"\\née', "created": 1700000000})
HEAD = {"object": "chat.completion.chunk", "model": "lmi"}


def event(value: Any) -> bytes:
    """Return an event as vLLM's server writes it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return f"data: {text}\n\n".encode()


def telling(stream: dict[str, Any], delta: dict[str, Any], **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
    return event(stream | HEAD | {"choices": [choice | more]})


def role(stream: dict[str, Any]) -> bytes:
    return telling(stream, {"role": "assistant", "content": ""})


def text(stream: dict[str, Any], output: TextOutput) -> bytes:
    if output.finish_reason is None:
        return telling(stream, {"content": output.text})
    end = {"finish_reason": output.finish_reason, "stop_reason": output.stop_reason}
    return telling(stream, {"content": output.text}, **end)


def usage(stream: dict[str, Any], prompt: int, completion: int, **more: Any) -> bytes:
    counts = {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
    }
    return event(stream | HEAD | {"choices": [], "usage": counts | more})


OUTPUTS = (
    [TextOutput("a", None, None), TextOutput("", None, None), TextOutput('"\n🗼', "length", None)],
    [TextOutput("\u2028", None, None), TextOutput("", "stop", "the \\")],
    [TextOutput("née", None, None), TextOutput("x", "stop", 300)],
)


def whole(
    stream: dict[str, Any], outputs: list[TextOutput], counts: tuple[int, int]
) -> list[bytes]:
    return [
        role(stream), *(text(stream, each) for each in outputs), usage(stream, *counts), DONE
    ]  # fmt: skip


@pytest.mark.parametrize("outputs", OUTPUTS)
@pytest.mark.parametrize("others", OUTPUTS)
def test_the_events_of_one_stream_are_those_of_another(
    outputs: list[TextOutput], others: list[TextOutput]
) -> None:
    one, other = STREAMS
    layouts = ChatLayouts.of(whole(one, outputs, (5, 3)), outputs, one, (5, 3))
    assert layouts == ChatLayouts.of(whole(other, others, (700, 1)), others, other, (700, 1))
    assert layouts is not None
    assert layouts.content is not None
    assert layouts.usage is not None
    assert layouts.role.event(other) == role(other)
    for each in others[:-1]:
        assert layouts.content.event(other | {"text": each.text}) == text(other, each)
    last = vars(others[-1])
    assert layouts.last.event(other | last) == text(other, others[-1])
    counts = {"prompt_tokens": 700, "completion_tokens": 1, "total_tokens": 701}
    assert layouts.usage.event(other | counts) == usage(other, 700, 1)


def test_a_stream_of_one_text_tells_nothing_of_a_middle() -> None:
    stream, outputs = STREAMS[0], [TextOutput("a", "length", None)]
    layouts = ChatLayouts.of(
        [role(stream), text(stream, outputs[0]), DONE], outputs, stream, (5, 1)
    )
    assert layouts is not None
    assert (layouts.content, layouts.usage) == (None, None)


STREAM_OF_ONE = STREAMS[0]
MIDDLE, LAST = OUTPUTS[2]
GOOD = whole(STREAM_OF_ONE, OUTPUTS[2], (5, 2))


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(GOOD[:-1], id="no end"),
        pytest.param([*GOOD[:-1], b"data: [END]\n\n"], id="another end"),
        pytest.param([*GOOD, DONE], id="one event more"),
        pytest.param(GOOD[1:], id="no role"),
        pytest.param([GOOD[0], GOOD[2], GOOD[1], *GOOD[3:]], id="another order"),
        pytest.param([*GOOD[:3], usage(STREAM_OF_ONE, 5, 3), DONE], id="other counts"),
        pytest.param(
            [*GOOD[:3], usage(STREAM_OF_ONE, 5, 2, cached_tokens=4), DONE], id="further counts"
        ),
        pytest.param(
            [GOOD[0], telling(STREAM_OF_ONE, {"content": "née"}, weight=3), *GOOD[2:]],
            id="a number that nobody knows",
        ),
        pytest.param(
            [GOOD[0], telling(STREAM_OF_ONE, {"content": "née", "reasoning": "x"}), *GOOD[2:]],
            id="a text that nobody knows",
        ),
        pytest.param(
            [GOOD[0], telling(STREAMS[1], {"content": "née"}), *GOOD[2:]], id="another id"
        ),
        pytest.param(
            [*GOOD[:2], telling(STREAM_OF_ONE, {"content": "x"}, finish_reason="stop"), *GOOD[3:]],
            id="no stop reason",
        ),
        pytest.param([GOOD[0], GOOD[1].replace(b":", b": ", 3), *GOOD[2:]], id="other spaces"),
        pytest.param([GOOD[0], b": ping\n\n", *GOOD[2:]], id="a comment"),
        pytest.param([GOOD[0], b"data: {\n\n", *GOOD[2:]], id="no JSON"),
    ],
)
def test_what_tells_more_or_less_is_no_form(events: list[bytes]) -> None:
    assert ChatLayouts.of(events, OUTPUTS[2], STREAM_OF_ONE, (5, 2)) is None


def test_outputs_that_do_not_end_are_no_form() -> None:
    assert ChatLayouts.of(GOOD, [MIDDLE, MIDDLE], STREAM_OF_ONE, (5, 2)) is None
    assert ChatLayouts.of(GOOD, [LAST, LAST], STREAM_OF_ONE, (5, 2)) is None
    assert ChatLayouts.of(GOOD, [], STREAM_OF_ONE, (5, 2)) is None


def test_gaps_are_filled_in_any_order() -> None:
    stream = STREAMS[1]
    values = {name: (place, stream[name]) for name, place in STREAM.items()}
    values["text"] = (TEXT["text"], MIDDLE.text)
    layout = EventLayout.of(text(stream, MIDDLE), values)
    assert layout is not None
    assert layout.filled({"text": "b"}).filled(stream) == layout.filled(stream).filled(
        {"text": "b"}
    )
    assert len(layout.filled(stream).parts) == len(("before", "after"))
