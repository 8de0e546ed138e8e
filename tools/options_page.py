"""The tables of docs/options.md. What is the same for several names is one row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final

from page_parts import coded, grouped, table

from lmi_backend.options import OPTIONS
from lmi_backend.options.argument_types import is_text_for
from lmi_backend.options.signature import NO_FLAG, Argument, recorded_signature
from lmi_backend.options.spec import PREFIX, SPECS, AnyOption, implementations
from lmi_backend.options.table import VARIABLES, find_option
from lmi_backend.options.table.variables import SERVER_FLAGS

_TITLES: Final = {"lmcache": "LMCache"} | {name: spec.title for name, spec in SPECS.items()}
_NO_DEFAULTS: Final[tuple[Any, ...]] = ("", 0, {}, [], None, False)


def options() -> Iterator[str]:
    live = [option for option in OPTIONS if option.status == "mapped"]
    for scope, found in groupby(sorted(live, key=_scope), key=_scope):
        yield f"## {_title(scope)}\n"
        yield from table(("option", "accepted; default", "meaning"), map(_row, found))
        yield ""
    for status in ("ignored", "refused"):
        yield f"## {status.capitalize()}\n"
        ended = (option for option in OPTIONS if option.status == status)
        of = grouped(((row.reason, _title(row.scope)), row.name) for row in ended)
        rows = ((coded(names), scope, reason) for (reason, scope), names in of.items())
        yield from table(("option", "for", "reason"), rows)
        yield ""
    for implementation in implementations():
        yield from _passed(implementation)
    yield "## Environment variables\n"
    of = grouped(((status.word, status.detail), name) for name, status in VARIABLES.items())
    rows = ((coded(names), word, detail) for (word, detail), names in of.items())
    yield from table(("variable", "status", "what becomes of it"), rows)


def _passed(engine: str) -> Iterator[str]:
    """Describe the arguments that are options under the engine's own names."""
    signature = recorded_signature(engine)
    if signature is None:
        return
    yield f"## Passed to {_title(engine)}\n"
    yield f"Arguments of {_title(engine)} {signature.version}, by their defaults. Write `option.`"
    yield "before them. `lmi-backend options NAME` has the type. Another version may have others.\n"
    yield from _arguments(engine, signature.arguments)
    if signature.server:
        yield f"\n### Passed to the HTTP server of {_title(engine)}\n"
        yield "These change how bodies are read and answered. The server itself is not started.\n"
        settable = {name: each for name, each in signature.server.items() if is_text_for(each.type)}
        yield from _arguments(engine, settable)


def _arguments(engine: str, arguments: Mapping[str, Argument]) -> Iterator[str]:
    of = grouped(
        (argument.default, name)
        for name, argument in arguments.items()
        if argument.flag != NO_FLAG and name not in SERVER_FLAGS
        if find_option(f"{PREFIX}{name}", engine) is None
    )
    yield from (f"- {default or 'no default'}: {coded(names)}" for default, names in of.items())


def _title(scope: str) -> str:
    return _TITLES.get(scope, scope.capitalize())


def _scope(option: AnyOption) -> str:
    return option.scope


def _row(option: AnyOption) -> tuple[str, ...]:
    default = option.printed_default
    accepted = option.kind.accepted + f"; `{default}`" * (default not in _NO_DEFAULTS)
    return coded((option.name, *option.aliases)), accepted, " ".join(_meaning(option))


def _meaning(option: AnyOption) -> Iterator[str]:
    yield option.help
    if others := [name for name in option.variables if name != _usual_variable(option)]:
        yield f"Also: {coded(others)}."
    same = {name.removeprefix(PREFIX) for name in (option.name, *option.aliases)}
    arguments = (option.argument_of(each) for each in implementations().values())
    if others := [name for name in dict.fromkeys(arguments) if name and name not in same]:
        yield f"Sets {coded(others)}."


def _usual_variable(option: AnyOption) -> str:
    """Return the environment variable that follows from the name; empty if none does."""
    return option.variable if not option.prefixed_env else ""
