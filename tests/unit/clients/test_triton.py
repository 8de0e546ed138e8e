"""Bodies for Triton are what was read; of its paths those for clients are known."""

import json
import struct
from typing import Any

import pytest

from lmi_backend.clients.triton import (
    TritonPath,
    Written,
    read_members,
    read_path,
    texts_of,
    write_generate_body,
    write_inference,
)
from lmi_backend.errors import HttpError
from tests.support.answers.triton_bodies import (
    FAMILIES,
    LENGTH,
    NOT_JSON,
    binary,
    element,
    inference,
    plain,
    replaced,
    tensor,
)


@pytest.mark.parametrize(
    ("text", "method", "word"),
    [
        ("/v2", "GET", ""),
        ("/v2/", "GET", ""),
        ("/v2/health/live", "GET", ""),
        ("/v2/models/stats", "GET", ""),
        ("/v2/models/a", "GET", ""),
        ("/v2/models/a.b-c/versions/2", "GET", ""),
        ("/v2/models/a/config/", "GET", "config"),
        ("/v2/models/a/versions/1/infer", "POST", "infer"),
        ("/v2/models/a/generate_stream", "POST", "generate_stream"),
    ],
)
def test_a_clients_path_is_read(text: str, method: str, word: str) -> None:
    assert read_path(text) == TritonPath(text.rstrip("/"), method, word)


@pytest.mark.parametrize(
    "text",
    [
        "", "/", "/v2/models", "/v2/repository/index", "/v2/models/a/load", "/v2/logging",
        "/v2/models/a/trace/setting", "/v2//models/a", "/v2/models/../a", "/v2/models/a%2fb",
        "/v2/models/a/versions/x/infer", "/v2/models/a/infer//", "/v2/models/a/infer\n",
        "/v2/models/ä", "/v2/models/" + "a" * 256, "/v2/models/a/versions/" + "1" * 20,
        "/v2/models/" + "a" * 60_000, "/v2/systemsharedmemory/status", "/v2/trace/setting",
        "/v2/cudasharedmemory/status", "/v2/systemsharedmemory/region/a/register",
        "/v2/repository/models/a/load", "/v2/models/a/generate/../load", "/v2/./repository/index",
    ],
)  # fmt: skip
def test_all_others_are_not(text: str) -> None:
    assert read_path(text) is None


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
        read_members(json.dumps(body).encode())


def test_a_body_of_generate_is_passed_on_as_it_is() -> None:
    body: dict[str, Any] = {
        "text_input": "a", "id": "b", "n": 1, "x": 0.1, "on": True, "off": None, "stop": ["a", 1],
        "parameters": {"n": 2**64 - 1, "stop": []},
    }  # fmt: skip
    read = read_members(json.dumps(body).encode())
    assert json.loads(write_generate_body(read, "", {})) == body
    # But lists in lists become flat.
    nested = b'{"stop": [["a", "b"], "c"], "parameters": {"ids": [[1], [2]]}}'
    assert read_members(nested) == {"stop": ["a", "b", "c"], "parameters": {"ids": [1, 2]}}


def test_whole_bodies_are_found_wherever_they_are() -> None:
    text = '{"requestType": 1}'
    for body in ({"request": text}, {"request": [text]}, {"parameters": {"request": [[text]]}}):
        assert texts_of(read_members(json.dumps(body).encode())) == (text,)


def written(body: dict[str, Any], tenant: str = "") -> dict[str, Any]:
    read: dict[str, Any] = json.loads(joined(write_inference(plain(body)[1], None, tenant)))
    return read


def joined(written: Written) -> bytes:
    return b"".join(written.pieces)


def written_binary(tail: bytes, tenant: str = "", **more: Any) -> Written:
    headers, data = binary(len(tail), tail, **more)
    return write_inference(data, int(headers[LENGTH]), tenant)


@pytest.mark.parametrize(
    "body",
    [
        inference(),
        inference(id="7", parameters={"max_tokens": 3, "top_p": 0.1, "stream": True, "a": "é"}),
        inference(outputs=[{"name": "text_output", "parameters": {"binary_data": False}}]),
        inference(outputs=[{"name": "text_output", "parameters": {}}]),
        inference(tensor(datatype="INT64", shape=[2], data=[-(2**63), 2**63 - 1])),
        inference(tensor(datatype="UINT64", shape=[1], data=[2**64 - 1])),
        inference(tensor(datatype="FP64", shape=[3], data=[0.1, 5e-324, 1.7976931348623157e308])),
        inference(tensor(datatype="BOOL", shape=[2, 1], data=[True, False])),
        inference(tensor(datatype="BYTES", shape=[0], data=[])),
        inference(tensor(value='" \\ é \0 😀')),
    ],
)
def test_a_body_is_passed_on_as_it_is(body: dict[str, Any]) -> None:
    assert written(body) == body


def test_the_elements_of_a_tensor_become_flat() -> None:
    nested = tensor(shape=[2, 2], datatype="INT32", data=[[1, 2], [3, 4]])
    assert written(inference(nested))["inputs"][0]["data"] == [1, 2, 3, 4]


def test_binary_tensors_follow_the_json_that_is_written() -> None:
    tail = element(b"a b")
    own = written_binary(tail, "mine")
    head, rest = joined(own)[: own.json_length], joined(own)[own.json_length :]
    assert rest == tail
    body = json.loads(head)
    assert body["parameters"] == {"max_tokens": 1, "tenant": "mine"}
    assert body["inputs"][0]["parameters"] == {"binary_data_size": 7}


@pytest.mark.parametrize("family", ["classification", "shared memory", "deep", "sizes"])
def test_what_is_not_for_triton_is_refused(family: str) -> None:
    for headers, data in FAMILIES[family]():
        length = headers.get(LENGTH, "")
        with pytest.raises(HttpError) as refusal:
            write_inference(data, int(length) if length.isdecimal() else None, "")
        assert refusal.value.status == 400
        assert len(str(refusal.value)) < 500


def test_a_refusal_names_what_it_refuses() -> None:
    parameters = {"classification": 1}
    with pytest.raises(HttpError, match="classification"):
        written(inference(outputs=[{"name": "text_output", "parameters": parameters}]))
    with pytest.raises(HttpError, match="shared_memory_region"):
        written(inference(tensor(parameters={"shared_memory_region": "a"})))
    with pytest.raises(HttpError, match="classification"):
        read_members(json.dumps({"text_input": "a", "parameters": parameters}).encode())


@pytest.mark.parametrize("text", NOT_JSON)
def test_what_is_no_json_is_refused(text: bytes) -> None:
    for data in (replaced(text), text, b'{"inputs": [], "parameters": {"a": ' + text + b"}}"):
        with pytest.raises(HttpError):
            write_inference(data, None, "")
    with pytest.raises(HttpError):
        read_members(b'{"a": ' + text + b"}")


@pytest.mark.parametrize(
    "more",
    [
        {"data": "a b"}, {"data": [1]}, {"data": [["a"], "b"], "shape": [2]}, {"data": [None]},
        {"datatype": "INT8", "data": [128]}, {"datatype": "UINT8", "data": [256]},
        {"datatype": "UINT8", "data": [-1]}, {"datatype": "UINT64", "data": [2**64]},
        {"datatype": "INT32", "data": [1.5]}, {"datatype": "INT32", "data": [True]},
        {"datatype": "BOOL", "data": [1]}, {"datatype": "FP16", "data": [1.0]},
        {"datatype": "FP32", "data": ["1"]}, {"shape": [2]}, {"shape": [-1]}, {"shape": [2**31]},
        {"name": ""}, {"name": "a\0"}, {"name": "a" * 513}, {"datatype": "STRING"}, {"more": 1},
        {"parameters": {"more": 1}}, {"data": [[[[[[[[["a"]]]]]]]]]},
    ],
)  # fmt: skip
def test_a_tensor_that_is_none_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(HttpError):
        written(inference(tensor() | more))


@pytest.mark.parametrize(
    "more",
    [
        {"id": 1}, {"id": "a\0"}, {"more": 1}, {"outputs": [{"name": "a", "more": 1}]},
        {"parameters": {"a": [1]}}, {"parameters": {"a": None}}, {"parameters": {"a": {}}},
        {"parameters": {"a": 2**64}}, {"parameters": {"a": "b\0"}}, {"parameters": {"a\0": 1}},
        {"inputs": [tensor(), tensor()]},
    ],
)  # fmt: skip
def test_a_request_that_is_none_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(HttpError):
        written(inference() | more)


def test_both_data_and_bytes_or_neither_are_refused() -> None:
    with pytest.raises(HttpError, match="either"):
        written(inference({"name": "a", "datatype": "BYTES", "shape": [1]}))
    data = plain(inference(tensor(parameters={"binary_data_size": 0})))[1]
    with pytest.raises(HttpError, match="either"):
        write_inference(data, len(data), "")


@pytest.mark.parametrize("inner", [0, 2, 4, 2**32 - 1])
def test_whole_bodies_that_lie_about_their_length_are_refused(inner: int) -> None:
    tail = struct.pack("<I", inner) + b"a b"
    with pytest.raises(HttpError):
        written_binary(tail, name="request")


def test_whole_bodies_of_inferences_are_found_wherever_they_are() -> None:
    body = b'{"requestType": 1}'
    text = body.decode()
    tail = element(body)
    assert list(written_binary(tail, name="request").texts) == [text]
    named = inference(tensor("request", text))
    assert write_inference(plain(named)[1], None, "").texts == (text,)


@pytest.mark.parametrize(
    ("prompt", "outputs", "is_taken"),
    [
        ("text_input", ["text_output", "finish_reason"], True), ("text_input", [], True),
        ("text_input", ["finish_reason"], False), ("text_input", ["generated_text"], False),
        ("inputs", ["generated_text"], True), ("inputs", ["response"], True),
        ("inputs", ["details"], False), ("request", ["response"], True),
        ("request", ["text_output"], False), ("input_ids", ["sequence_length"], False),
        ("another", ["score"], True),
    ],
)  # fmt: skip
def test_what_is_counted_is_in_the_answer(prompt: str, outputs: list[str], is_taken: bool) -> None:
    body = inference(tensor(prompt), outputs=[{"name": name} for name in outputs])
    data = plain(body)[1]
    write_inference(data, None, "mine")
    if is_taken:
        write_inference(data, None, "mine", is_counted=True)
        return
    with pytest.raises(HttpError, match="outputs"):
        write_inference(data, None, "mine", is_counted=True)


def test_a_tenant_that_is_known_counts() -> None:
    body = {"text_input": "a", "tenant": "another", "parameters": {"tenant": "another"}}
    read = read_members(json.dumps(body).encode())
    assert json.loads(write_generate_body(read, "", {})) == body
    mine = {"text_input": "a", "tenant": "mine", "parameters": {}}
    assert json.loads(write_generate_body(read, "mine", {})) == mine
