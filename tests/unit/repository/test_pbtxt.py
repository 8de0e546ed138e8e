"""What is rendered is read by Triton's own proto, so a misspelt field cannot pass."""

from typing import Any

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from lmi_backend.repository.model_config import Word, render


def parse(text: str) -> Any:
    return text_format.Parse(text, model_config_pb2.ModelConfig())


@pytest.mark.parametrize("text", ["", 'a"b', "a\\b", "a\nb", "é😀", "\x01", "\x7f", "'", "\\u00e9"])
def test_any_text_survives(text: str) -> None:
    assert parse(render({"name": text})).name == text


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_nobody_thought_of_survives(text: str) -> None:
    assert parse(render({"name": text})).name == text


def test_words_numbers_and_truth_values_are_written_bare() -> None:
    text = render(
        {"max_batch_size": 0, "backend": "b", "input": [{"data_type": Word("TYPE_BOOL")}]}
    )
    assert text == 'max_batch_size: 0\nbackend: "b"\ninput {\n  data_type: TYPE_BOOL\n}\n'
    assert render({"optional": True, "decoupled": False}) == "optional: true\ndecoupled: false\n"


def test_a_list_of_messages_repeats_the_field() -> None:
    config = parse(render({"input": [{"name": "a", "dims": [-1, 2]}, {"name": "b"}], "output": []}))
    assert [(tensor.name, list(tensor.dims)) for tensor in config.input] == [
        ("a", [-1, 2]),
        ("b", []),
    ]
    assert not config.output
