"""A client that asks for a structured output which takes the server's cores to compile."""

import json
from typing import Any

import pytest

from lmi_backend.clients.request import read_request
from lmi_backend.engine_config import Context
from lmi_backend.engines.bodies import BodyBounds, check_body
from lmi_backend.errors import RequestError
from lmi_backend.generation import GenerateRequest
from lmi_backend.structures import DEFAULT_BOUNDS, StructureBounds, check_structures

CHOICES = [f"choice number {number}" for number in range(20_000)]


def _check(body: bytes, bounds: BodyBounds) -> None:
    check_body(body, bounds)


def _nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def _pattern(pattern: str) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}


# What of each kind stopped or slowed vLLM 0.32 with xgrammar, and the bound that refuses it.
SCHEMAS: dict[str, tuple[dict[str, Any], str]] = {
    "enum": ({"enum": CHOICES}, "max_structure_choices"),
    "deep": (_nested(200), "max_structure_depth"),
    "large": ({f"p{number}": {"type": "string"} for number in range(9000)}, "max_structure_size"),
    "repetition": (_pattern("^[a-z]{1,20000}$"), "max_structure_repeats"),
    "a key": ({"patternProperties": {"^[a-z]{1,5000}$": {}}}, "max_structure_repeats"),
}  # fmt: skip
LONG_GRAMMAR = "root ::= " + " | ".join(f'"{word}"' for word in CHOICES)
schemas = pytest.mark.parametrize(("schema", "bound"), SCHEMAS.values(), ids=SCHEMAS)

FINE: dict[str, Any] = {
    "a city": {"enum": [f"city {number}" for number in range(1000)]},
    "a form": {
        "type": "object",
        "properties": {
            f"field_{number}": {
                "type": "object",
                "description": "What stands in it? One line, *short*." * 3,
                "properties": {
                    "name": {"type": "string", "pattern": "^[A-Za-z0-9 _.-]{1,255}$"},
                    "when": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"},
                }
                if number < 10
                else {"name": {"type": "string", "maxLength": 100_000}},
                "required": ["name"],
            }
            for number in range(250)
        },
    },
}


def _lmi(parameters: dict[str, Any]) -> dict[str, Any]:
    return {"request": json.dumps({"inputs": "a b", "parameters": parameters})}


ROADS: dict[str, Any] = {
    "lmi": lambda: _lmi({"guided_choice": CHOICES}),
    "lmi object": lambda: _lmi({"structured_outputs": {"choice": CHOICES}}),
    "lmi response_format": lambda: _lmi(
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": CHOICES}}}}
    ),
    "lmi text": lambda: _lmi({"guided_json": json.dumps({"enum": CHOICES})}),
    "lmi tensors": lambda: {"inputs": "a b", "guided_choice": CHOICES},
    "vllm tensors": lambda: {"text_input": "a b", "guided_choice": CHOICES},
    "vllm sampling_parameters": lambda: {
        "text_input": "a b",
        "sampling_parameters": json.dumps({"structured_outputs": json.dumps({"choice": CHOICES})}),
    },
    "trtllm": lambda: {
        "text_input": "a b",
        "guided_decoding_guide_type": "json_schema",
        "guided_decoding_guide": json.dumps({"enum": CHOICES}),
    },
    "trtllm grammar": lambda: {
        "text_input": "a b",
        "guided_decoding_guide_type": "ebnf_grammar",
        "guided_decoding_guide": LONG_GRAMMAR,
    },
    "trtllm tag": lambda: {
        "text_input": "a b",
        "guided_decoding_guide_type": "structural_tag",
        "guided_decoding_guide": json.dumps({"structures": [{"schema": {"enum": CHOICES}}]}),
    },
}  # fmt: skip


def _asked(inputs: dict[str, Any]) -> tuple[GenerateRequest, ...]:
    """Return what a request asks for; engines check its structures before all else."""
    row = {name: value if isinstance(value, list) else [value] for name, value in inputs.items()}
    work = read_request([row], {}, Context()).work
    assert isinstance(work, tuple)
    return work


def _check_work(
    work: tuple[GenerateRequest, ...], bounds: StructureBounds = DEFAULT_BOUNDS
) -> None:
    for each in work:
        check_structures(each.sampling.extra.get("structured_outputs") or {}, bounds)


def _refused(work: tuple[GenerateRequest, ...]) -> str:
    with pytest.raises(RequestError) as refusal:
        _check_work(work)
    return str(refusal.value)


@pytest.mark.parametrize("road", ROADS.values(), ids=ROADS)
def test_twenty_thousand_choices_are_refused_on_every_road(road: Any) -> None:
    work = _asked(road())
    message = _refused(work)
    assert message.startswith("structured_outputs.")
    assert "at most " in message
    assert "(option.max_structure_" in message
    assert len(message) < 1000
    _check_work(work, StructureBounds(choices=30_000, size=1_000_000))


@pytest.mark.parametrize("schema", FINE.values(), ids=FINE)
def test_a_large_schema_of_real_life_is_taken(schema: dict[str, Any]) -> None:
    _check_work(_asked(_lmi({"guided_json": schema})))
    _check(json.dumps({"messages": [], "tools": [{"parameters": schema}]}).encode(), BodyBounds())


def _openai(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    function = {"name": "f", "parameters": schema}
    return {
        "response_format": {
            "response_format": {"type": "json_schema", "json_schema": {"schema": schema}}
        },
        "structured_outputs": {"structured_outputs": {"json": schema}},
        "its text": {"structured_outputs": {"json": json.dumps(schema)}},
        "tools": {"tools": [{"type": "function", "function": function}], "tool_choice": "required"},
        "responses": {"text": {"format": {"type": "json_schema", "schema": schema}}},
        "anthropic": {
            "tools": [{"name": "f", "input_schema": schema}],
            "tool_choice": {"type": "any"},
        },
        "anthropic format": {"output_config": {"format": {"schema": schema}}},
        "guided_json": {"guided_json": schema},
        "tag": {"response_format": {"type": "structural_tag", "structures": [{"schema": schema}]}},
        "tag's text": {"structured_outputs": {"structural_tag": json.dumps({"format": schema})}},
    }


@schemas
def test_an_openai_body_has_the_same_bounds(schema: dict[str, Any], bound: str) -> None:
    for field, more in _openai(schema).items():
        body = {"messages": [{"role": "user", "content": "a"}]} | more
        with pytest.raises(RequestError) as refusal:
            _check(json.dumps(body).encode(), BodyBounds())
        bounds = {bound, "max_structure_size"} if "text" in field else {bound}
        assert any(each in str(refusal.value) for each in bounds), field
        assert refusal.value.field in body


@schemas
def test_tools_that_are_only_shown_are_bounded_by_their_depth(
    schema: dict[str, Any], bound: str
) -> None:
    tools = [
        {"type": "function", "function": {"name": f"f{n}", "parameters": schema}} for n in "ab"
    ]
    body = {"messages": [{"role": "user", "content": "a"}], "tools": tools}
    for choice in (None, "auto", "none", {"type": "auto"}):
        data = json.dumps(body | {"tool_choice": choice}).encode()
        if bound != "max_structure_depth":
            _check(data, BodyBounds())
            continue
        with pytest.raises(RequestError, match=bound):
            _check(data, BodyBounds())


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: text.encode(),
        lambda text: text.encode("utf-16"),
        lambda text: text.encode("utf-16-le"),
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.replace('"n": 1', '"n": NaN').encode(),
        lambda text: ('{"structured_outputs": null, ' + text[1:]).encode(),
        lambda text: text.replace("choice", "\\u0063hoice").encode(),
        lambda text: text.replace("structured_outputs", "structured\\u005foutputs").encode(),
    ],
    ids=["utf-8", "utf-16", "utf-16-le", "mark", "nan", "twice", "escaped", "escaped name"],
)
def test_a_body_in_another_spelling_is_read_as_vllm_reads_it(encode: Any) -> None:
    body = json.dumps({"n": 1, "structured_outputs": {"choice": list(range(5000))}})
    with pytest.raises(RequestError, match="max_structure_choices"):
        _check(encode(body), BodyBounds())


@pytest.mark.parametrize("body", [b"", b"[", b"[1]", b"{", b'"a"', b"\xff", b"null", b"{}"])
def test_a_body_that_is_none_is_left_to_the_server(body: bytes) -> None:
    _check(body, BodyBounds())


def test_a_body_nested_beyond_the_stack_is_refused() -> None:
    with pytest.raises(RequestError, match="nested too deeply"):
        _check(b'{"tools": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", BodyBounds())


@pytest.mark.parametrize(
    "name", ["model", "session_id", "request_id", "cache_salt", "previous_response_id"]
)
@pytest.mark.parametrize("value", ["y" * 1_000_000, "x\nERROR y"], ids=["long", "forged"])
def test_a_name_in_an_openai_body_is_refused(name: str, value: str) -> None:
    with pytest.raises(RequestError) as refusal:
        _check(json.dumps({"prompt": "a", name: value}).encode(), BodyBounds())
    assert refusal.value.field == name
    assert len(str(refusal.value)) < 500


@pytest.mark.parametrize("name", ["user", "safety_identifier"])
@pytest.mark.parametrize("value", ["y" * 10_000, "x\ny", '{"a": "\N{GRINNING FACE}"}'])
def test_a_user_is_any_text(name: str, value: str) -> None:
    _check(json.dumps({"prompt": "a", name: value}).encode(), BodyBounds())
