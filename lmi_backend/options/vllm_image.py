"""The variables of AWS's vLLM images: each SM_VLLM_* is a flag of vLLM's command line.

As the images of August 2026 read them, `true` or nothing is a flag without a value, and `false`
leaves the flag out. A JSON array, or JSON objects with blanks between, are several arguments.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from lmi_backend.options.option import PREFIX
from lmi_backend.options.setting import WrittenSetting
from lmi_backend.options.table import VARIABLES

_IMAGE: Final = "SM_VLLM_"
_OFF: Final = "no_"
_ORIGIN: Final = "environment"
_EMPTY: Final = "AWS's images leave out the flag of an empty list"


def flags(environment: Mapping[str, str]) -> Iterator[tuple[str, WrittenSetting]]:
    """Yield (key, setting) of each flag that is an option."""
    for variable, name, value in _variables(environment):
        if _why_left_out(name, value):
            continue
        text = _text(value) or "true"
        is_off = name.startswith(_OFF) and text == "true"
        key = PREFIX + (name.removeprefix(_OFF) if is_off else name)
        yield key, WrittenSetting(variable, "false" if is_off else text, _ORIGIN)


def left_out(environment: Mapping[str, str]) -> Iterator[tuple[WrittenSetting, str]]:
    """Yield each variable that AWS's images make no flag of, and why."""
    for variable, name, value in _variables(environment):
        if reason := _why_left_out(name, value):
            yield WrittenSetting(variable, value, _ORIGIN), reason


def _variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield variable, name of the option, and value."""
    for variable, value in sorted(environment.items()):
        name = variable.removeprefix(_IMAGE).lower()
        if name != variable.lower() and name and variable not in VARIABLES:
            yield variable, name, value.strip()


def _why_left_out(name: str, value: str) -> str:
    if value.lower() == "false":
        off = "" if name.startswith(_OFF) else f"; {_IMAGE}{_OFF.upper()}{name.upper()}= turns off"
        return f"AWS's images leave out a flag whose value is false{off}"
    return _EMPTY if _array(value) == [] else ""


def _text(value: str) -> str:
    """Return the arguments after a flag as one text: a list of several is a JSON array."""
    if value.lower() == "true":
        return "true"
    words = _array(value) or _objects(value)
    if len(words) == 1 and isinstance(words[0], (dict, list)):
        return value if _array(value) is None else json.dumps(words[0])
    if len(words) == 1 and "," not in str(words[0]):
        return words[0] if isinstance(words[0], str) else json.dumps(words[0])
    return json.dumps(words) if len(words) > 1 else value


def _array(value: str) -> list[Any] | None:
    """Return the items of a JSON array; None of what is none."""
    if not (value.startswith("[") and value.endswith("]")):
        return None
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, list) else None


def _objects(value: str) -> list[Any]:
    """Return the JSON objects that a text is made of; none if it is made of others too."""
    decoder, found, rest = json.JSONDecoder(), [], value
    while rest.startswith("{"):
        try:
            each, end = decoder.raw_decode(rest)
        except (ValueError, RecursionError):
            return []
        found.append(each)
        rest = rest[end:].lstrip()
    return [] if rest else found
