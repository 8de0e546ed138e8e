"""What is understood of a body of Triton's `generate`; all else is for Triton."""

import struct
from typing import Any

import pytest

from lmi_backend.clients.triton.reading import read_generate


def read(**body: Any) -> Any:
    return read_generate(body)


def test_inputs_become_tensors_and_the_rest_parameters() -> None:
    asked = read(text_input="a", stop=["b", "c"], stream=True, depth=3, colour="blue", warm=0.5)
    assert asked.inputs == {"text_input": ["a"], "stop": ["b", "c"], "stream": [True]}
    assert asked.parameters == {"depth": 3, "colour": "blue", "warm": 0.5}


def test_parameters_stand_for_their_members() -> None:
    asked = read(parameters={"stop": "x", "max_tokens": 2}, text_input="a", max_tokens=1, id="7")
    assert asked.inputs == {"text_input": ["a"], "stop": ["x"]}
    assert asked.parameters == {"max_tokens": 2, "id": "7"}
    assert asked.request_id == "7"


def test_numbers_have_the_type_of_their_tensor() -> None:
    asked = read(
        sampling_param_temperature=0.7, sampling_param_top_p=1, sampling_param_seed=2**64 - 1
    )
    (single,) = struct.unpack("f", struct.pack("f", 0.7))
    assert asked.inputs == {
        "sampling_param_temperature": [single],
        "sampling_param_top_p": [1.0],
        "sampling_param_seed": [2**64 - 1],
    }


@pytest.mark.parametrize(
    "body",
    [
        {"id": 5}, {"parameters": []}, {"colour": None}, {"colour": {}}, {"colour": []},
        {"colour": "a\0"}, {"co\0lour": "a"}, {"triton_colour": 1}, {"timeout": 5},
        {"parameters": {"timeout": 5}}, {"depth": 2**63}, {"text_input": 5}, {"text_input": []},
        {"text_input": ["a", "b"]}, {"stop": [["a"]]}, {"stream": 1}, {"stream": "true"},
        {"sampling_param_top_k": True}, {"sampling_param_top_k": 2**31},
        {"sampling_param_seed": -1}, {"sampling_param_top_p": "1"},
        {"stop": ["a"], "parameters": {"stop": ["b"]}},
    ],
)  # fmt: skip
def test_the_unusual_is_left_to_triton(body: Any) -> None:
    assert read_generate(body) is None
