import json
from typing import Any

import pytest

from lmi_backend.errors import RequestError
from lmi_backend.generation import GenerateRequest, Sampling
from lmi_backend.schema.fields import CONTROLS, FIELDS, IGNORED, NEUTRAL
from lmi_backend.schema.reply import Reply
from lmi_backend.schema.request import read_request


def read(
    inputs: dict[str, list[Any]], dialect: Any = "legacy", **parameters: Any
) -> tuple[GenerateRequest, Reply]:
    return read_request(inputs, parameters, dialect=dialect)


def lmi(dialect: Any = "legacy", **parameters: Any) -> GenerateRequest:
    return read({"inputs": ["p"]}, dialect, **parameters)[0]


def test_an_lmi_body_has_lmis_defaults() -> None:
    request = lmi()
    assert (request.prompt, request.stream) == ("p", False)
    assert request.sampling.max_tokens == 30


@pytest.mark.parametrize(
    ("dialect", "parameters", "temperature"),
    [
        ("legacy", {}, 0.0),
        ("legacy", {"temperature": 0.7}, 0.7),
        ("legacy", {"do_sample": True}, None),
        ("legacy", {"do_sample": True, "temperature": 0.7}, 0.7),
        ("legacy", {"do_sample": False, "temperature": 0.7}, 0.0),
        ("async", {}, None),
        ("async", {"do_sample": False}, 0.0),
        ("async", {"temperature": 0.7}, 0.7),
    ],
)
def test_when_an_lmi_body_samples(
    dialect: str, parameters: dict[str, Any], temperature: float | None
) -> None:
    assert lmi(dialect, **parameters).sampling.temperature == temperature


def test_a_vllm_body_has_the_defaults_of_its_sampling_params() -> None:
    sampling = read({"text_input": ["p"]})[0].sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_k) == (16, 1.0, 0)


def test_both_names_of_a_parameter_are_known() -> None:
    sampling = lmi(max_tokens=5, stop_sequences=["a"], ignore_eos_token=True).sampling
    assert (sampling.max_tokens, sampling.stop, sampling.ignore_eos) == (5, ("a",), True)


def test_lists_come_as_tensors_or_values() -> None:
    inputs = {"inputs": ["p"], "stop": ["a", ""], "stop_token_ids": [1, 2], "bad_words": []}
    sampling = read(inputs)[0].sampling
    assert (sampling.stop, sampling.stop_token_ids, sampling.bad_words) == (("a",), (1, 2), ())


def test_sampling_parameters_are_json_whose_numbers_may_be_text() -> None:
    text = json.dumps(
        {"max_tokens": "7", "temperature": "0", "ignore_eos": "True", "logit_bias": {"5": 1}}
    )
    sampling = read({"text_input": ["p"], "sampling_parameters": [text]})[0].sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.ignore_eos) == (7, 0.0, True)
    assert sampling.extra == {"logit_bias": {5: 1.0}}


def test_an_adapter_has_both_clients_names() -> None:
    assert lmi(lora_name="a").adapter == "a"
    assert read({"inputs": ["p"], "adapters": ["a"]})[0].adapter == "a"


def test_names_of_triton_are_no_parameters() -> None:
    assert lmi(**dict.fromkeys(IGNORED, 1), triton_x=1) == lmi()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"max_new_tokens": 0},
            "max_new_tokens 0 is too small; accepted: a whole number, 1 or more",
        ),
        ({"max_new_tokens": True}, "max_new_tokens True is not a whole number"),
        ({"max_new_tokens": "7"}, "max_new_tokens '7' is not a whole number"),
        ({"temperature": -1}, "temperature -1 is out of range; accepted: a number, 0 or more"),
        ({"temperature": float("nan")}, "temperature nan is out of range"),
        ({"top_p": 0}, "top_p 0 is out of range; accepted: a number, above 0 to 1"),
        ({"repetition_penalty": 0}, "repetition_penalty 0 is out of range"),
        ({"do_sample": 1}, "do_sample 1 is not true or false; accepted: true or false"),
        ({"seed": "x"}, "seed 'x'"),
        ({"stop": [1]}, "stop [1] is not a list of strings"),
        ({"logit_bias": 3}, "logit_bias 3 is not an object"),
        (
            {"temprature": 1},
            "temprature is not a parameter of this server; did you mean temperature?",
        ),
        ({"n": 2}, "n 2 is not served yet; accepted: 1"),
        ({"max_tokens": 3, "max_new_tokens": 4}, "max_new_tokens contradicts another name"),
        ({"max_tokens": 3, "min_tokens": 4}, "min_tokens 4 is too large; accepted: at most"),
        ({"adapters": ["a", "b"]}, "adapters has 2 names; accepted: one name"),
    ],
)
def test_refusals_name_field_value_and_what_is_accepted(
    parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError) as refusal:
        lmi(**parameters)
    assert str(refusal.value).startswith(message)


@pytest.mark.parametrize("name", NEUTRAL)
def test_only_values_that_ask_for_nothing_are_accepted(name: str) -> None:
    for value in NEUTRAL[name]:
        assert lmi(**{name: value}) == lmi()
        assert lmi(**{name: str(value)}) == lmi()
    with pytest.raises(RequestError, match=f"^{name} 7 is not served yet; accepted: "):
        lmi(**{name: 7})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "inputs and text_input are both missing; accepted: one of them"),
        ({"inputs": []}, "inputs and text_input are both missing"),
        ({"inputs": ["a"], "text_input": ["b"]}, "inputs and text_input are both given"),
        ({"inputs": [""]}, "inputs is empty; accepted: a prompt"),
        ({"inputs": ["a", "b"]}, "inputs has 2 prompts; accepted: one prompt"),
        (
            {"text_input": ["a"], "sampling_parameters": ["{"]},
            "sampling_parameters '{' is not JSON",
        ),
        ({"text_input": ["a"], "sampling_parameters": ["1"]}, "sampling_parameters '1' is not a"),
        (
            {"text_input": ["a"], "stream": [True], "exclude_input_in_output": [False]},
            "exclude_input_in_output False cannot be put before an answer that is streamed",
        ),
    ],
)
def test_bodies_that_are_refused(inputs: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(RequestError) as refusal:
        read(inputs)
    assert str(refusal.value).startswith(message)


def test_what_a_client_of_either_format_asks_back() -> None:
    _, reply = read({"inputs": ["p"]}, details=True)
    names = {"finish_reason", "num_input_tokens", "num_output_tokens"}
    assert (reply.wire_format, reply.prompt_field, reply.outputs) == ("lmi", "inputs", names)
    inputs = {
        "text_input": ["p"],
        "return_num_input_tokens": [True],
        "return_finish_reason": [False],
    }
    _, reply = read(inputs)
    assert (reply.wire_format, reply.prompt_field) == ("vllm", "text_input")
    assert reply.outputs == {"num_input_tokens"}


@pytest.mark.parametrize(
    ("inputs", "parameters", "prefix"),
    [
        ({"inputs": ["p"]}, {}, ""),
        ({"inputs": ["p"]}, {"return_full_text": True}, "p"),
        ({"text_input": ["p"]}, {}, "p"),
        ({"text_input": ["p"], "exclude_input_in_output": [True]}, {}, ""),
        ({"text_input": ["p"], "stream": [True]}, {}, ""),
    ],
)
def test_the_prompt_comes_back_as_each_client_expects(
    inputs: dict[str, list[Any]], parameters: dict[str, Any], prefix: str
) -> None:
    assert read(inputs, **parameters)[1].prefix == prefix


def test_a_stream_is_asked_by_input_or_parameter() -> None:
    for request, reply in (
        read({"inputs": ["p"], "stream": [True]}),
        read({"inputs": ["p"]}, stream=True),
    ):
        assert (request.stream, reply.stream) == (True, True)


def test_sampling_parameters_win_over_request_parameters() -> None:
    inputs = {"text_input": ["p"], "sampling_parameters": ['{"max_new_tokens": 6}']}
    assert read(inputs, max_tokens=5)[0].sampling.max_tokens == 6


def test_a_seed_may_be_text_and_a_priority_is_not_sampling() -> None:
    request = lmi(seed="5", priority=-1)
    assert (request.sampling.seed, request.priority) == (5, -1)
    assert request.sampling.extra == {}


@pytest.mark.parametrize("name", FIELDS)
def test_every_parameter_refuses_what_it_cannot_be(name: str) -> None:
    with pytest.raises(RequestError) as refusal:
        lmi(**{name: {"no": "such"}} if name != "logit_bias" else {name: 1})
    assert refusal.value.field == name
    assert f"; accepted: {FIELDS[name].kind.accepted}" in str(refusal.value)


@pytest.mark.parametrize("name", FIELDS)
def test_every_parameter_sets_what_exists(name: str) -> None:
    target = FIELDS[name].target
    known = {*CONTROLS, *Sampling.__struct_fields__} - {"extra"}
    assert target in known or target.startswith("extra.")


def test_names_are_served_or_neutral_or_ignored_but_not_two_of_them() -> None:
    assert not FIELDS.keys() & NEUTRAL.keys()
    assert not (FIELDS.keys() | NEUTRAL.keys()) & IGNORED
