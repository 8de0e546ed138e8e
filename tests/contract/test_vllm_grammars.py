"""What llguidance and outlines cannot compile ends a process of its own, and no worker."""

import json
from typing import Any

import pytest

from lmi_backend.errors import RequestError
from tests.support.run.places import SCRIPTS


def _all_of(count: int) -> dict[str, Any]:
    return {"allOf": [{"type": "string", "pattern": f".*{n}a.*"} for n in range(count)]}


def _chain(count: int) -> dict[str, Any]:
    parts = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(count)}
    return {"$defs": parts | {f"a{count}": {}}, "$ref": "#/$defs/a0"}


SLOW = {"type": "string", "pattern": ".*a.{25}"}
LARK = f"start: <|tool|> <[149999]> x\nx: %json {json.dumps(_all_of(40))}"
TAG = {"triggers": ["<f"], "structures": [{"begin": "<f>", "schema": _all_of(40), "end": ""}]}
KEYS = {"type": "object", "properties": {"b": SLOW}, "patternProperties": {"^a": {}}}

HARMFUL: dict[str, tuple[str, dict[str, Any]]] = {
    "patterns at once": ("guidance", {"json": _all_of(40)}),
    "as text": ("guidance", {"json": json.dumps(_all_of(40))}),
    "deep inside": ("guidance", {"json": {"properties": {"a": {"items": _all_of(40)}}}}),
    "in a grammar": ("guidance", {"grammar": LARK}),
    "in a tag": ("guidance", {"structural_tag": json.dumps(TAG)}),
    "repetitions": ("guidance", {"regex": "(a{1000}b){1000}"}),
    "many items": ("guidance", {"json": {"type": "array", "minItems": 10_000_000}}),
    "a chain": ("guidance", {"json": _chain(5000)}),
    "states": ("outlines", {"regex": ".*a.{25}"}),
    "states of a schema": ("outlines", {"json": SLOW}),
}
TAKEN: dict[str, tuple[str, dict[str, Any]]] = {
    "a schema": ("guidance", {"json": {"properties": {"a": SLOW}}}),
    "few patterns": ("guidance", {"json": _all_of(8)}),
    "a grammar": ("guidance", {"grammar": "start: <|tool|> <[149999]>"}),
    "no pattern": ("guidance", {"regex": "("}),
    "another library": ("xgrammar", {"json": _all_of(40)}),
    "choices": ("guidance", {"choice": ["a", "b"]}),
}


@pytest.fixture(scope="module")
def ended(vllm_interpreter: Any) -> dict[str, list[str]]:
    cases = {f"harmful {name}": case for name, case in HARMFUL.items()}
    cases |= {f"taken {name}": case for name, case in TAKEN.items()}
    data = json.dumps(list(cases.values())).encode()
    answers = json.loads(vllm_interpreter.run(str(SCRIPTS / "vllm_grammars.py"), data=data))
    return dict(zip(cases, answers, strict=True))


@pytest.mark.parametrize("name", HARMFUL)
def test_what_takes_too_much_is_refused_each_time(ended: Any, name: str) -> None:
    first, second = ended[f"harmful {name}"]
    (kind,) = HARMFUL[name][1]
    assert first.startswith(f"RequestError: structured_outputs.{kind} takes too much time or")
    assert second == first


@pytest.mark.parametrize("name", TAKEN)
def test_what_can_be_compiled_is_left_to_vllm(ended: Any, name: str) -> None:
    assert ended[f"taken {name}"] == ["", ""]


MULTIPLE = {"type": "integer", "multipleOf": 2}
OTHERS = {
    "outlines": {"json": {"properties": {"n": MULTIPLE}, "patternProperties": {"^a": {}}}},
    "guidance": {"json": MULTIPLE},
}
"""What vLLM's "auto" gives to other libraries than xgrammar."""


def _chat(engine: Any, structure: dict[str, Any]) -> Any:
    chat = {"messages": [{"role": "user", "content": "a"}], "structured_outputs": structure}
    return engine.post("/v1/chat/completions", chat)


@pytest.mark.parametrize("engine", ["vllm split"], indirect=True)
def test_no_request_chooses_the_library_of_all_later_ones(engine: Any) -> None:
    """This engine has vLLM's own default, "auto"; outlines takes no grammar."""
    assert "structured_outputs_config" not in engine.plan.config.arguments
    for structure in OTHERS.values():
        refused = engine.start("a", extra={"structured_outputs": structure}).wait().error
        assert refused is not None
        assert refused.code == "INVALID_ARG"
        (chunk,) = _chat(engine, structure).wait().deltas
        assert chunk.status == 400
    grammar = {"grammar": 'root ::= "yes" | "no"'}
    answer = engine.ask("a", extra={"structured_outputs": grammar})
    assert (answer.error, answer.text in ("yes", "no")) == (None, True)


@pytest.mark.parametrize("engine", ["vllm split"], indirect=True)
def test_what_takes_hours_to_compile_harms_no_other(engine: Any) -> None:
    harmful = _chat(engine, {"json": _all_of(60)})
    assert engine.ask("The capital of Italy is", max_tokens=4).text
    (chunk,) = harmful.wait().deltas
    assert chunk.status == 400
    structures = {"json": _all_of(61)}
    refused = engine.start("a", extra={"structured_outputs": structures}).wait().error
    assert refused is not None
    assert refused.code == "INVALID_ARG"


@pytest.mark.parametrize("engine", ["vllm"], indirect=True)
def test_a_grammar_beyond_the_bounds_is_refused(engine: Any) -> None:
    many = {"structured_outputs": {"choice": [str(number) for number in range(20_001)]}}
    refused = engine.ask("a", extra=many).error
    assert isinstance(refused, RequestError)
    assert "option.max_structure_" in str(refused)
