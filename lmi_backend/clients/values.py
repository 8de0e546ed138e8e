"""Readers of prompts and of parameter values: each takes what JSON may hold.

Clients constrain an answer by OpenAI's `response_format`, and by what others put there. Sources:
OpenAI's API reference. `GrammarType` of Text Generation Inference 3.3 (router/src/lib.rs), which
huggingface_hub writes into a chat's `response_format` too. llama.cpp's server README (`schema` next
to `json_object`). Fireworks' and Together's references (`grammar`, `pattern`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from lmi_backend.errors import RequestError
from lmi_backend.json_text import read_text


@dataclass(frozen=True)
class Value:
    """A kind of value. `read` raises ValueError with the end of the sentence "field value …"."""

    read: Callable[[object], Any]
    accepted: str


def read_value(kind: Value, field: str, value: object, *, is_text: bool = False) -> Any:
    """Read a value.

    Args:
        is_text: numbers and truth values may also come as strings, as in the vLLM backend's
            `sampling_parameters`.

    Raises:
        RequestError: naming the field, the value and what is accepted.
    """
    given = _cast(kind, value) if is_text else value
    try:
        return kind.read(given)
    except ValueError as error:
        if given is not value:
            try:
                return kind.read(value)
            except ValueError:
                pass
        raise RequestError(str(error), field=field, value=value, accepted=kind.accepted) from error


def _cast(kind: Value, value: object) -> object:
    """Return what Python's int, float and bool make of a value; a text is never another text."""
    given = _from_text(value) if isinstance(value, str) else value
    if isinstance(given, str):
        return value
    if kind is BOOLEAN and given in (0, 1):
        return bool(given)
    return int(given) if isinstance(given, float) and given.is_integer() else given


def _from_text(text: str) -> Any:
    try:
        return read_text(text.lower() if text in ("True", "False") else text)
    except (ValueError, RecursionError):
        return text


MAX_WEIGHT: Final = 100.0
"""How much likelier a `logit_bias` may make a token, and how much less likely."""
# What travels to the worker, and what engines take.
_INT64 = 1 << 63


def integer(minimum: int | None = None, maximum: int = _INT64 - 1) -> Value:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError("is not a whole number")  # noqa: TRY004  one error for all readers
        if minimum is not None and value < minimum:
            raise ValueError("is too small")
        if not -_INT64 <= value < _INT64:
            raise ValueError("does not fit in 64 bits")
        if value > maximum:
            raise ValueError("is too large")
        return value

    upper = " or more" if maximum == _INT64 - 1 else f" to {maximum}"
    return Value(read, "a whole number" + ("" if minimum is None else f", {minimum}{upper}"))


def number(minimum: float, maximum: float | None = None, *, above: bool = False) -> Value:
    lower = f"above {minimum:g}" if above else f"{minimum:g}"
    upper = " or more" if maximum is None else f" to {maximum:g}"

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError("is not a number")  # noqa: TRY004
        if abs(value) > sys.float_info.max:
            raise ValueError("is out of range")
        is_high = maximum is not None and value > maximum
        # A comparison with NaN is false, so ask for what is right.
        if not (value > minimum if above else value >= minimum) or is_high:
            raise ValueError("is out of range")
        return float(value)

    return Value(read, f"a number, {lower}{'' if above and maximum is None else upper}")


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("is not true or false")  # noqa: TRY004
    return value


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("is not a string")  # noqa: TRY004
    try:
        # Of ASCII, which Python knows at once, there is none.
        _ = value.isascii() or value.encode()
    except UnicodeEncodeError:
        raise ValueError("holds half of a character (a lone surrogate)") from None
    return value


def _names(value: object) -> tuple[str, ...]:
    """Return strings; an empty one names the base model."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ValueError("is not a list of strings")
    return tuple(map(_string, items))


def _strings(value: object) -> tuple[str, ...]:
    # Some clients send [""] for "none".
    return tuple(filter(None, _names(value)))


def _object(value: object) -> dict[str, Any]:
    given = _from_text(value) if isinstance(value, str) else value
    if not isinstance(given, dict):
        raise ValueError("is not an object")  # noqa: TRY004
    return sendable(given)


def sendable(value: dict[str, Any]) -> dict[str, Any]:
    """Return an object that can travel to a worker. Raises ValueError: a value in it cannot."""
    try:
        msgspec.msgpack.encode(value)
    except (OverflowError, UnicodeEncodeError, RecursionError) as error:
        raise ValueError("holds a number beyond 64 bits or half of a character") from error
    return value


def _object_or_text(value: object) -> dict[str, Any] | str:
    return sendable(value) if isinstance(value, dict) else _string(value)


def _count_or_flag(value: object) -> int | None:
    """Read OpenAI's logprobs: a number, or for chat a truth value."""
    if isinstance(value, bool):
        return 0 if value else None
    count: int = integer(0).read(value)
    return count


def _integers(value: object) -> tuple[int, ...]:
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, int) and not isinstance(item, bool) for item in items):
        raise ValueError("is not a list of whole numbers")
    return tuple(integer().read(item) for item in items)


def _seed(value: object) -> int:
    # LMI clients send the seed as a string too.
    seed: int = integer().read(_from_text(value) if isinstance(value, str) else value)
    return seed


def _token_weights(value: object) -> dict[int, float]:
    if not isinstance(value, dict):
        raise ValueError("is not an object")  # noqa: TRY004
    token, weight = integer(0), number(-sys.float_info.max)
    return {token.read(_from_text(key)): _cut(weight.read(item)) for key, item in value.items()}


def _cut(weight: float) -> float:
    """Return what engines make of a weight; LMI lets larger ones through to them."""
    return max(-MAX_WEIGHT, min(MAX_WEIGHT, weight))


BOOLEAN = Value(_boolean, "true or false")
STRING = Value(_string, "a string")
STRINGS = Value(_strings, "a string or a list of strings")
INTEGERS = Value(_integers, "a list of whole numbers")
SEED = Value(_seed, "a whole number")
TOKEN_WEIGHTS = Value(_token_weights, "an object of token id to number")
NAMES = Value(_names, "a string or a list of strings")
OBJECT = Value(_object, "an object, or JSON text of one")
OBJECT_OR_TEXT = Value(_object_or_text, "an object or a string")
COUNT_OR_FLAG = Value(_count_or_flag, "a whole number, 0 or more, or true or false")

Prompt = str | tuple[int, ...]
"""A text, or token ids."""

_PROMPTS = "a string, a list of strings, token ids, or a list of lists of token ids"
_MAX_ID = 1 << 31


def read_prompts(field: str, value: object) -> tuple[list[Prompt], bool]:
    """Return the prompts, and whether they are a list. Raises RequestError: one is no prompt."""
    if isinstance(value, list) and value and not all(_is_id(item) for item in value):
        return [_prompt(field, item) for item in value], True
    return [_prompt(field, value)], False


def prompt_text(prompt: Prompt) -> str:
    """Return the text of a prompt; an empty one for token ids."""
    return prompt if isinstance(prompt, str) else ""


def _prompt(field: str, value: object) -> Prompt:
    if isinstance(value, list | tuple) and value and all(_is_id(item) for item in value):
        return tuple(value)
    if not value:
        raise RequestError("is empty", field=field, accepted="a prompt")
    if not isinstance(value, str):
        raise RequestError("is not a prompt", field=field, value=value, accepted=_PROMPTS)
    text: str = read_value(STRING, field, value)
    return text


def _is_id(item: object) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and 0 <= item < _MAX_ID


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
    """Read a `response_format`, or TGI's `grammar`. Raises RequestError: none, or in two places."""
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
