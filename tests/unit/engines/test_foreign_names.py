"""What OpenAI's bodies ask by names of others is served or refused, never passed over."""

import json
from typing import Any

import pytest

from lmi_backend.engines.bodies import BodyBounds, check_body
from lmi_backend.errors import RequestError

CHATS = "/v1/chat/completions"
SCHEMA = {"type": "object", "required": ["a"]}
OPENAIS = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
PATTERN = "[A-Z][a-z]{3}"


def _served(body: dict[str, Any], path: str = CHATS) -> dict[str, Any]:
    given = {"model": "tiny", "messages": []} | body
    checked = check_body(json.dumps(given).encode(), BodyBounds(), path)
    read: dict[str, Any] = json.loads(checked.data)
    return {
        name: value for name, value in read.items() if read.get(name) != given.get(name)
    } | dict.fromkeys(body.keys() - read.keys())


@pytest.mark.parametrize(
    ("given", "structures"),
    [
        ({"guided_json": SCHEMA}, {"json": SCHEMA}),
        ({"guided_json": json.dumps(SCHEMA)}, {"json": json.dumps(SCHEMA)}),
        ({"guided_regex": PATTERN}, {"regex": PATTERN}),
        (
            {"guided_choice": ["a", "b"], "guided_whitespace_pattern": " "},
            {"choice": ["a", "b"], "whitespace_pattern": " "},
        ),
        ({"guided_grammar": 'root ::= "a"'}, {"grammar": 'root ::= "a"'}),
        ({"json_schema": {"name": "x", "schema": SCHEMA}}, {"json": SCHEMA}),
        ({"grammar": {"type": "json", "value": {"schema": SCHEMA}}}, {"json": SCHEMA}),
        (
            {"guided_whitespace_pattern": " ", "response_format": OPENAIS},
            {"json": SCHEMA, "whitespace_pattern": " "},
        ),
        ({"regex": PATTERN}, {"regex": PATTERN}),
        ({"regex_pattern": PATTERN}, {"regex": PATTERN}),
        ({"grammar_string": 'root ::= "a"'}, {"grammar": 'root ::= "a"'}),
        ({"ebnf": 'root ::= "a"'}, {"grammar": 'root ::= "a"'}),
        ({"json_schema": SCHEMA}, {"json": SCHEMA}),
        ({"grammar": 'root ::= "a"'}, {"grammar": 'root ::= "a"'}),
        ({"grammar": {"type": "regex", "value": PATTERN}}, {"regex": PATTERN}),
        ({"response_format": {"type": "json_object", "value": SCHEMA}}, {"json": SCHEMA}),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, {"json": SCHEMA}),
        ({"response_format": {"type": "json", "value": SCHEMA}}, {"json": SCHEMA}),
        (
            {"response_format": {"type": "json_schema", "value": {"name": "x", "schema": SCHEMA}}},
            {"json": SCHEMA},
        ),
        ({"response_format": {"type": "regex", "value": PATTERN}}, {"regex": PATTERN}),
        ({"response_format": {"type": "regex", "pattern": PATTERN}}, {"regex": PATTERN}),
    ],
    ids=json.dumps,
)
def test_a_constraint_by_another_name_is_one_of_vllms(
    given: dict[str, Any], structures: dict[str, Any]
) -> None:
    assert _served(given) == dict.fromkeys(given) | {"structured_outputs": structures}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"guided_json": None, "guided_choice": [], "grammar": "", "guided_json_object": False},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}},
        {"response_format": {"type": "json_object"}},
        {"typical_p": 1.0, "watermark": False, "modalities": ["text"], "functions": []},
        {"metadata": {"a": "b"}, "store": True},
        {"best_of": 2, "n": 2},
        {"mcp_servers": [], "t_max_predict_ms": -1, "reasoning_format": "auto", "parameters": {}},
    ],
    ids=json.dumps,
)
def test_what_vllm_reads_or_asks_nothing_is_left_alone(given: dict[str, Any]) -> None:
    assert _served(given) == {}


def test_white_space_of_no_constraint_asks_nothing() -> None:
    given = {"guided_whitespace_pattern": " "}
    assert _served(given) == {"guided_whitespace_pattern": None}
    own = {"regex": PATTERN}
    served = _served(given | {"structured_outputs": own})
    assert served["structured_outputs"] == own | {"whitespace_pattern": " "}


@pytest.mark.parametrize("value", ["wrong", ["wrong"]])
@pytest.mark.parametrize("name", ["adapter_id", "adapters", "adapter", "lora_name"])
def test_an_adapter_is_asked_as_a_model(name: str, value: Any) -> None:
    assert _served({name: value}) == {name: None, "model": "wrong"}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"guided_json": SCHEMA, "guided_regex": PATTERN}, "guided_json and guided_regex"),
        ({"guided_json": SCHEMA, "structured_outputs": {"regex": PATTERN}}, "guided_json"),
        ({"regex": PATTERN, "response_format": {"type": "json_object"}}, "regex"),
        ({"guided_regex": PATTERN, "regex": "b"}, "guided_regex and regex"),
        ({"response_format": {"type": "regex"}, "grammar": {"type": "regex"}}, "grammar"),
        ({"response_format": {"type": "yaml", "value": "a"}}, "response_format"),
        ({"grammar": {"type": "regex", "value": {"a": 1}}}, "grammar"),
        ({"guided_whitespace_pattern": " ", "structured_outputs": "x"}, "structured_outputs"),
        ({"adapter_id": "a", "lora_name": "b"}, "adapter_id and lora_name"),
        ({"adapters": ["a", "b"]}, "adapters"),
        ({"typical_p": 0.9}, "typical_p"),
        ({"num_beams": 4}, "num_beams"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"best_of": 3}, "best_of"),
        ({"enable_search": True}, "enable_search"),
        ({"parameters": {"max_new_tokens": 3}}, "parameters"),
        ({"models": ["a", "b"]}, "models"),
        ({"output_format": {"type": "json_schema", "schema": SCHEMA}}, "output_format"),
        ({"structured_outputs": True}, "structured_outputs"),
        ({"reasoning_format": "hidden"}, "reasoning_format"),
        ({"response_schema": SCHEMA}, "response_schema"),
        ({"mcp_servers": [{"name": "x"}]}, "mcp_servers"),
        ({"regex": "(a{900}){900}"}, "structured_outputs.regex"),
        ({"response_format": {"type": "regex", "value": "(a{900}){900}"}}, "structured_outputs"),
    ],
    ids=json.dumps,
)
def test_what_cannot_be_served_is_refused_by_its_name(given: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as caught:
        _served(given)
    assert caught.value.field.startswith(field) or field.endswith(caught.value.field)


@pytest.mark.parametrize("keep", ["all", {"type": "thinking_turns", "value": 1}])
def test_edits_that_leave_the_whole_context_are_no_edits(keep: Any) -> None:
    """As Claude Code 2.1.197 sends them with each request."""
    edits = {"edits": [{"type": "clear_thinking_20251015", "keep": keep}]}
    if keep == "all":
        assert _served({"context_management": edits}, "/v1/messages") == {}
        return
    with pytest.raises(RequestError, match="context_management"):
        _served({"context_management": edits}, "/v1/messages")


def test_a_constraint_where_the_path_has_none_is_refused() -> None:
    with pytest.raises(RequestError, match=r"guided_json .*/v1/messages.* output_config.format"):
        _served({"guided_json": SCHEMA}, "/v1/messages")


@pytest.mark.parametrize("path", ["/v1/embeddings", "/pooling"])
def test_an_encoding_of_null_is_none(path: str) -> None:
    assert _served({"encoding_format": None}, path) == {"encoding_format": None}
    for given in ("float", "base64", "", 5):
        assert _served({"encoding_format": given}, path) == {}
    data = b'{"input": "a", "encoding_format": null}'
    assert b"encoding_format" not in check_body(data, BodyBounds(), path).data


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN"])
def test_a_number_that_no_reader_takes_hides_no_other_member(number: str) -> None:
    data = f'{{"model": "tiny", "messages": [], "n": {number}, "guided_regex": "a"}}'.encode()
    changed = check_body(data, BodyBounds(), CHATS)
    assert json.loads(changed.data)["structured_outputs"] == {"regex": "a"}
