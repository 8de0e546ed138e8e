"""Wrong requests get an error that names the field, and harm nobody."""

from typing import Any

import pytest

from tests.support.serving import Served

WRONG: list[tuple[str, Any, tuple[str, ...]]] = [
    ("wrong type", {"temperature": "hot"}, ("temperature", "'hot'", "a number")),
    ("too small", {"max_new_tokens": 0}, ("max_new_tokens 0", "1 or more")),
    ("out of range", {"top_p": 1.5}, ("top_p 1.5", "to 1")),
    ("unknown adapter", {"lora_name": "none"}, ("adapter 'none'", "wrong")),
    ("wrong list", {"adapters": ["wrong", "wrong"]}, ("adapters has 2 names for 1 inputs",)),
]


@pytest.mark.parametrize(("parameters", "words"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_a_wrong_parameter_is_named(
    served: Served, parameters: dict[str, Any], words: tuple[str, ...]
) -> None:
    status, answer = served.generate("tiny", {"inputs": "The", "parameters": parameters})
    assert status == 400
    for word in words:
        assert word in answer["error"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"inputs": ""}, ("inputs is empty",)),
        ({"text_input": ""}, ("text_input is empty",)),
        ({"stream": True}, ("prompt is missing", "inputs", "text_input")),
        ({"text_input": "a", "beam_width": 2}, ("beam_width 2", "not served")),
        ({"inputs": "a", "text_input": "b"}, ("inputs and text_input", "both given")),
        (b'{"inputs": "\xff\xfe"}', ("inputs", "not UTF-8")),
        ({"text_input": "a", "sampling_parameters": "{"}, ("sampling_parameters", "not JSON")),
    ],
)
def test_a_wrong_body_is_explained(served: Served, body: Any, words: tuple[str, ...]) -> None:
    status, answer = served.generate("tiny", body)
    assert status == 400
    for word in words:
        assert word in answer["error"]


@pytest.mark.parametrize("field", ["inputs", "text_input"])
def test_a_prompt_longer_than_the_model_allows_is_refused(served: Served, field: str) -> None:
    status, answer = served.generate("tiny", {field: "one two " * 1500})
    assert status == 400
    assert answer["error"].startswith(f"{field} has ")
    assert "fewer than 1024" in answer["error"]


def test_the_server_answers_rightly_after_all_that(served: Served) -> None:
    status, answer = served.generate("tiny", {"inputs": "The capital of Italy is"})
    assert (status, answer["generated_text"]) == (200, " Rome.")
