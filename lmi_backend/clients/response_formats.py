"""How clients constrain an answer: OpenAI's `response_format`, and what others put there.

Sources: OpenAI's API reference. `GrammarType` of Text Generation Inference 3.3 (router/src/lib.rs),
which huggingface_hub writes into a chat's `response_format` too. llama.cpp's server README
(`schema` next to `json_object`). Fireworks' and Together's references (`grammar`, `pattern`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lmi_backend.errors import RequestError

_FORMATS: Final = (
    '{"type": "text"}, "json_object", or "json_schema" with json_schema.schema; or "json", "regex" '
    'or "grammar" with value'
)
_OTHERS: Final = ("value", "schema", "pattern", "regex", "grammar")
"""Members that constrain, as others than OpenAI write it."""
_KINDS: Final = {
    "json": "json", "json_object": "json", "json_schema": "json", "regex": "regex",
    "grammar": "grammar",
}  # fmt: skip
"""Type to what the member is among vLLM's structured outputs."""

Constraint = dict[str, Any]
"""A kind of vLLM's structured outputs to its value; empty for any text."""


def is_openais(form: Mapping[str, Any]) -> bool:
    """Tell whether an object holds its constraint where OpenAI puts it, or none."""
    return not any(form.get(name) for name in _OTHERS)


def bare_schema(value: Any) -> Any:
    """Return a schema without the name that OpenAI and Text Generation Inference give it.

    As a schema of its own, such an object would constrain nothing.
    """
    is_named = isinstance(value, dict) and isinstance(value.get("schema"), dict)
    return value["schema"] if is_named and "type" not in value else value


def read_format(field: str, form: Mapping[str, Any]) -> Constraint:
    """Read a `response_format`, or a `grammar` of Text Generation Inference.

    Raises:
        RequestError: it is no format, or has its constraint in two places.
    """
    match form:
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}} if is_openais(form):
            return {"json": schema}
        case {"type": "json_object"} if is_openais(form):
            return {"json_object": True}
        case {"type": "text"} if is_openais(form):
            return {}
    given = [form[name] for name in _OTHERS if form.get(name)]
    kind = _KINDS.get(str(form.get("type")))
    value = given[0] if len(given) == 1 and not form.get("json_schema") else None
    if kind == "json":
        value = bare_schema(value)
    wanted = dict | str if kind == "json" else str
    if kind is None or not isinstance(value, wanted):
        raise RequestError("is not a format", field=field, value=dict(form), accepted=_FORMATS)
    return {kind: value}
