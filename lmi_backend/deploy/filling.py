"""The files of this folder with the values of a model, and plain values as YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Final

Value = str | int | bool | None | Sequence["Value"] | Mapping[str, "Value"]

_PLAIN: Final = re.compile(r"(--)?[A-Za-z/][\w./=-]*", re.ASCII)
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def yaml_text(value: Mapping[str, Value]) -> str:
    return "".join(f"{line}\n" for line in _mapping(value))


def field(value: Value) -> str:
    """Return what follows the colon of a field: its value, on lines below it if it has some."""
    return yaml_text({"x": value}).removeprefix("x:").rstrip("\n")


def _mapping(value: Mapping[str, Value]) -> Iterator[str]:
    for key, inner in value.items():
        if inner and isinstance(inner, Mapping):
            yield f"{scalar(key)}:"
            yield from (f"  {line}" for line in _mapping(inner))
        elif inner and _is_list(inner):
            yield f"{scalar(key)}:"
            yield from (f"  {line}" for line in _list(inner))  # type: ignore[arg-type]
        else:
            yield f"{scalar(key)}: {scalar(inner)}"


def _list(value: Sequence[Value]) -> Iterator[str]:
    for each in value:
        if each and isinstance(each, Mapping):
            first, *rest = _mapping(each)
        elif each and _is_list(each):
            first, *rest = _list(each)  # type: ignore[arg-type]
        else:
            first, rest = scalar(each), []
        yield f"- {first}"
        yield from (f"  {line}" for line in rest)


def _is_list(value: Value) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def scalar(value: Value) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    # JSON is YAML; empty lists and mappings, too.
    return json.dumps(value, ensure_ascii=False)


FOLDER: Final = Path(__file__).parent
STORE: Final = "/opt/ml/model"
"""Where the base mounts the model."""


def fill(name: str, values: Mapping[str, object]) -> str:
    return Template((FOLDER / name).read_text(encoding="utf-8")).substitute(values)


def texts_below(name: str) -> dict[str, str]:
    return {each.name: each.read_text(encoding="utf-8") for each in (FOLDER / name).iterdir()}
