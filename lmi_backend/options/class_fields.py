"""The fields of a configuration class, read from its source: dataclasses and Pydantic models."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lmi_backend.options.package_source import Module, Package, texts_in

REQUIRED: Final = "required"
"""Default of a field that has none."""
TEXT_LIMIT: Final = 120
"""Characters of a default, or of a type that is shown; longer ones are cut."""
_FIELDS: Final = ("field", "Field", "PydanticField")


@dataclass(frozen=True)
class ClassField:
    """What a class says of one of its fields."""

    type: ast.expr
    default: str
    module: Module
    """Where its type is written."""
    is_changed: bool = False
    """Whether a validator changes what is given before it is judged by the type."""


def class_fields(name: str, module: Module, package: Package) -> dict[str, ClassField]:
    """Return the fields that a class takes, those of its bases first, by name.

    A class that cannot be found has none.
    """
    return _inherited(name, module, package, ())


def _inherited(
    name: str, module: Module, package: Package, seen: tuple[ast.ClassDef, ...]
) -> dict[str, ClassField]:
    found = package.find_class(name, module)
    # A source that derives a class from itself must end.
    if found is None or found[0] in seen:
        return {}
    node, home = found
    fields: dict[str, ClassField] = {}
    for base in reversed(node.bases):
        if isinstance(base, ast.Name):
            fields |= _inherited(base.id, home, package, (*seen, node))
    return fields | dict(_declared(node, home))


def _declared(node: ast.ClassDef, module: Module) -> Iterator[tuple[str, ClassField]]:
    changed = set(_changed(node))
    for statement in node.body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        kind = _unquoted(statement.annotation)
        call = _field_call(statement.value)
        # Pydantic takes a field under its alias only: `mpi_session` is spelled `_mpi_session`.
        name = _constant(call.get("alias")) or statement.target.id
        is_field = not re.match(r"([\w.]+\.)?ClassVar\b", ast.unparse(kind))
        is_argument = is_field and _constant(call.get("init")) is not False
        if is_argument and not name.startswith("_"):
            default = shorten(_default(statement.value, call))
            yield (
                name,
                ClassField(kind, default, module, bool(changed & {statement.target.id, "*"})),
            )


def _unquoted(kind: ast.expr) -> ast.expr:
    """Return a type that is written as text."""
    text = _constant(kind)
    try:
        return ast.parse(text, mode="eval").body if isinstance(text, str) else kind
    except SyntaxError:
        return kind


def _changed(node: ast.ClassDef) -> Iterator[str]:
    """Yield the fields that a validator of the class sees before they are judged."""
    calls = (
        call
        for method in node.body
        for call in getattr(method, "decorator_list", ())
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("field_validator")
    )
    for call in calls:
        modes = [_constant(word.value) for word in call.keywords if word.arg == "mode"]
        if modes and modes != ["after"]:
            yield from texts_in(call.args)


def _field_call(value: ast.expr | None) -> dict[str, ast.expr]:
    """Return the keywords of dataclasses' `field(…)` or Pydantic's `Field(…)`."""
    if not isinstance(value, ast.Call) or ast.unparse(value.func).split(".")[-1] not in _FIELDS:
        return {}
    first = {"default": value.args[0]} if value.args else {}
    return first | {word.arg: word.value for word in value.keywords if word.arg}


def _constant(node: ast.expr | None) -> Any:
    return node.value if isinstance(node, ast.Constant) else None


def _default(value: ast.expr | None, call: Mapping[str, ast.expr]) -> str:
    if value is None:
        return REQUIRED
    if not call:
        return ast.unparse(value)
    if "default_factory" in call:
        return f"{ast.unparse(call['default_factory'])}()"
    default = call.get("default")
    return REQUIRED if default is None or _constant(default) is ... else ast.unparse(default)


def shorten(text: str) -> str:
    """Return a type or default as one line of at most TEXT_LIMIT characters."""
    line = " ".join(text.split())
    return line if len(line) <= TEXT_LIMIT else f"{line[: TEXT_LIMIT - 1]}…"
