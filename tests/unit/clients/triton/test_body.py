"""Bodies of generate for Triton are what was read, and nothing else."""

import json
from typing import Any

import pytest

from lmi_backend.clients.triton.body import (
    Body,
    check_members,
    read_members,
    texts_of,
    write_generate_body,
)
from lmi_backend.errors import HttpError
from tests.support.triton_bodies import NOT_JSON


def _read(data: bytes) -> Body:
    return check_members(read_members(data))


@pytest.mark.parametrize(
    "body",
    [
        {"a": [[[1]]]}, {"a": [{}]}, {"a": {"b": {}}}, {"a": {"b": [[[1]]]}}, {"a\0": 1}, {"": 1},
        {"a": 2**64}, {"a": [-(2**63) - 1]}, {"a": {"b": 10**30}}, {"classification": 1},
        {"parameters": {"shared_memory_region": "a"}}, [], 1, None, {"a": [[2**64]]},
        dict.fromkeys(map(str, range(4097)), 1),
    ],
)  # fmt: skip
def test_a_body_of_generate_that_is_none_is_refused(body: Any) -> None:
    with pytest.raises(HttpError):
        _read(json.dumps(body).encode())


def test_a_body_of_generate_is_passed_on_as_it_is() -> None:
    body: dict[str, Any] = {
        "text_input": "a", "id": "b", "n": 1, "x": 0.1, "on": True, "off": None, "stop": ["a", 1],
        "parameters": {"n": 2**64 - 1, "stop": []},
    }  # fmt: skip
    read = _read(json.dumps(body).encode())
    assert json.loads(write_generate_body(read, "")) == body


def test_lists_in_lists_of_generate_become_flat() -> None:
    body = b'{"stop": [["a", "b"], "c"], "parameters": {"ids": [[1], [2]]}}'
    flat = {"stop": ["a", "b", "c"], "parameters": {"ids": [1, 2]}}
    assert _read(body) == flat


def test_a_tenant_that_is_known_counts() -> None:
    body = {"text_input": "a", "tenant": "another", "parameters": {"tenant": "another"}}
    read = _read(json.dumps(body).encode())
    assert json.loads(write_generate_body(read, "")) == body
    mine = {"text_input": "a", "tenant": "mine", "parameters": {}}
    assert json.loads(write_generate_body(read, "mine")) == mine


@pytest.mark.parametrize("text", NOT_JSON)
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises(HttpError):
        _read(b'{"a": ' + text + b"}")


def test_whole_bodies_are_found_wherever_they_are() -> None:
    text = '{"requestType": 1}'
    for body in ({"request": text}, {"request": [text]}, {"parameters": {"request": [[text]]}}):
        assert texts_of(_read(json.dumps(body).encode())) == (text,)
