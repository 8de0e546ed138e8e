"""Structural tags whose white space is bounded."""

import json

import pytest

from lmi_backend.engines.vllm.grammars import bounded

SCHEMA = {"type": "object", "properties": {"type": {"const": "json_schema", "json_schema": {}}}}
CONTENT = {"type": "json_schema", "json_schema": SCHEMA}
BOUNDED = CONTENT | {"max_whitespace_cnt": 1}


def _tag(content: object) -> dict[str, object]:
    parts = [{"type": "const_string", "value": "a"}, {"type": "tag", "content": content}]
    return {"type": "structural_tag", "format": {"type": "sequence", "elements": parts}}


@pytest.mark.parametrize("bound", [{}, {"max_whitespace_cnt": None}])
def test_the_json_of_a_tag_is_bounded_and_its_schema_kept(bound: dict[str, None]) -> None:
    assert json.loads(bounded(json.dumps(_tag(CONTENT | bound)))) == _tag(BOUNDED)


def test_a_bound_of_the_clients_own_stays() -> None:
    own = _tag(CONTENT | {"max_whitespace_cnt": 3})
    assert json.loads(bounded(json.dumps(own))) == own


def test_a_tag_of_the_older_form_is_bounded_in_the_newer() -> None:
    older = {"triggers": ["<f"], "structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}]}
    tag = {"type": "tag", "begin": "<f>", "content": BOUNDED, "end": "</f>"}
    triggered = {"type": "triggered_tags", "triggers": ["<f"], "tags": [tag]}
    answer = json.loads(bounded(json.dumps(older)))
    assert answer == {"type": "structural_tag", "format": triggered}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "1", '{"format"}', "{}", '{"structures": [{}]}', '{"structures": 1}']
)
def test_what_is_no_tag_is_left_to_vllm(text: str) -> None:
    assert bounded(text) == text
