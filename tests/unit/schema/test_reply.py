from typing import Any

import pytest

from lmi_backend.generation import Delta, FinishReason
from lmi_backend.schema.reply import Reply, WireFormat

DETAILS = frozenset({"finish_reason", "num_input_tokens", "num_output_tokens"})
PIECES = (
    Delta(" a", 1, num_prompt_tokens=3),
    Delta("", 1, num_prompt_tokens=3),
    Delta(" b", 2, "stop", num_prompt_tokens=3),
)
WHOLE = Delta(" a b", 4, "length", num_prompt_tokens=3)


def reply(wire_format: WireFormat, **changes: Any) -> Reply:
    return Reply(wire_format, prompt_field="inputs", **changes)


def test_an_lmi_stream_ends_with_the_whole_text() -> None:
    made = reply("lmi", stream=True)
    assert [made.values(delta) for delta in PIECES] == [
        {"text_output": " a"},
        {"text_output": ""},
        {"text_output": " b", "generated_text": " a b"},
    ]


def test_a_vllm_stream_has_pieces_only() -> None:
    made = reply("vllm", stream=True)
    assert [made.values(delta) for delta in PIECES] == [
        {"text_output": " a"},
        {"text_output": ""},
        {"text_output": " b"},
    ]


def test_an_lmi_answer_at_once_is_its_text_alone() -> None:
    assert reply("lmi").values(WHOLE) == {"generated_text": " a b"}
    wanted = reply("lmi", outputs=frozenset({"text_output"})).values(WHOLE)
    assert wanted == {"generated_text": " a b", "text_output": " a b"}


def test_a_vllm_answer_at_once_is_its_text_alone() -> None:
    assert reply("vllm").values(WHOLE) == {"text_output": " a b"}


@pytest.mark.parametrize(
    ("wire_format", "name"), [("lmi", "generated_text"), ("vllm", "text_output")]
)
def test_a_prompt_that_is_wanted_back_comes_first(wire_format: WireFormat, name: str) -> None:
    assert reply(wire_format, prefix="p").values(WHOLE) == {name: "p a b"}


def test_the_prompt_is_not_put_into_an_lmi_piece() -> None:
    made = reply("lmi", prefix="p", stream=True)
    assert [made.values(delta).get("text_output") for delta in PIECES] == [" a", "", " b"]


def test_an_output_is_there_if_it_was_asked() -> None:
    assert reply("vllm", outputs=frozenset({"num_output_tokens"})).values(WHOLE) == {
        "text_output": " a b",
        "num_output_tokens": 4,
    }
    assert reply("lmi", outputs=DETAILS).values(WHOLE) == {
        "generated_text": " a b",
        "finish_reason": "length",
        "num_input_tokens": 3,
        "num_output_tokens": 4,
    }


@pytest.mark.parametrize(
    ("finish", "stop", "lmi", "vllm"),
    [
        (None, None, "", "None"),
        ("stop", None, "eos_token", "stop"),
        ("stop", "x", "stop_sequence", "stop"),
        ("stop", 0, "stop_sequence", "stop"),
        ("length", None, "length", "length"),
        ("abort", None, "abort", "abort"),
        ("error", None, "error", "error"),
    ],
)
def test_each_format_has_its_own_word_for_the_end(
    finish: FinishReason | None, stop: str | int | None, lmi: str, vllm: str
) -> None:
    delta = Delta("a", 1, finish, stop)
    assert reply("lmi", outputs=DETAILS).values(delta)["finish_reason"] == lmi
    assert reply("vllm", outputs=DETAILS).values(delta)["finish_reason"] == vllm
