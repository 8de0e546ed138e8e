"""Options of a model as flags, named as vLLM or LMI names them: `--tensor-parallel-size 2`."""

from __future__ import annotations

import difflib
import functools
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NoReturn

from lmi_backend.errors import ConfigurationError
from lmi_backend.options.hints import closest
from lmi_backend.options.properties import Property
from lmi_backend.options.signature import Signature, recorded_signature
from lmi_backend.options.spec import PREFIX, implementations
from lmi_backend.options.table import KEYS
from lmi_backend.options.table.variables import SERVER_FLAGS
from lmi_backend.printable import printable

_OFF: Final = "no_"
_NUMBER: Final = re.compile(r"-\.?\d")
_TRUTHS: Final = ("true", "false")
_LISTS: Final = ("list", "adapters", "set", "tuple")
_KEY_IN_HINT: Final = re.compile(r"\boption\.(\w+)")


def split(argv: Sequence[str], own: Mapping[str, object]) -> tuple[list[str], list[Property]]:
    """Separate a command's own arguments from the flags that are options of a model."""
    rest, others, flags = list(argv), list[str](), list[Property]()
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if word == "--":
            return [*others, word, *rest], flags
        if not word.startswith("-") or word == "-" or _NUMBER.match(word):
            others.append(word)
        elif name in own:
            others.append(word)
            takes_value = getattr(own[name], "nargs", None) != 0
            others += [rest.pop(0)] if takes_value and not equals and rest else []
        else:
            key = key_of(name) or _refuse(name, own)
            is_off = _stem(name).startswith(_OFF) and not key.endswith(_stem(name))
            given = value if equals else _value(key, rest)
            if given is None:
                raise ConfigurationError(f"{name}: its value is missing")
            flags.append(Property(key, "false" if is_off and given == "true" else given, 0, name))
    return others, flags


def key_of(flag: str) -> str:
    """Return the key of the option that a flag sets; empty if no engine and no option is known."""
    stem = flag.lstrip("-")
    if stem.startswith(PREFIX):
        return stem
    name = _stem(flag)
    if key := _keys().get(name) or _keys().get(stem):
        return key
    first, dot, path = name.partition(".")
    if dot and first in _keys():
        return f"{_keys()[first]}.{path}"
    return _keys().get(name.removeprefix(_OFF), "")


def _stem(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


@functools.cache
def _signatures() -> list[Signature]:
    recorded = (recorded_signature(name) for name in implementations())
    return [each for each in recorded if each]


@functools.cache
def _keys() -> Mapping[str, str]:
    names = {key: key for key in KEYS if not key.startswith(PREFIX)}
    for flags in _signatures():
        listener = SERVER_FLAGS if flags.listener else ()
        for each in (*flags.arguments, *flags.server, *flags.listener, *flags.opposites, *listener):
            names[each] = PREFIX + each
        names |= {spelling: PREFIX + spelling for spelling in flags.spellings}
    return names | {key.removeprefix(PREFIX): key for key in KEYS if key.startswith(PREFIX)}


@functools.cache
def _kind(key: str) -> str:
    if key in KEYS:
        return KEYS[key][0].kind.name
    name = key.removeprefix(PREFIX)
    for flags in _signatures():
        if argument := flags.arguments.get(name) or flags.server.get(name):
            return argument.type
        if name in flags.opposites:
            return "bool"
    return ""


def _value(key: str, rest: list[str]) -> str | None:
    kind, values = _kind(key), list[str]()
    is_truth = kind.startswith("bool") and "str" not in kind
    while rest and (not rest[0].startswith("-") or _NUMBER.match(rest[0])):
        if is_truth and rest[0].lower() not in _TRUTHS:
            break
        values.append(rest.pop(0))
        if not kind.startswith(_LISTS):
            break
    if not values:
        return "true" if is_truth else None
    return values[0] if len(values) == 1 else json.dumps(values)


def _refuse(flag: str, own: Collection[str]) -> NoReturn:
    hint = closest(PREFIX + _stem(flag), (*KEYS, *_keys().values()))
    if not hint and (near := difflib.get_close_matches(flag, own, 1)):
        hint = f"; did you mean {near[0]}?"
    hint = _KEY_IN_HINT.sub(lambda match: f"--{match[1].replace('_', '-')}", hint)
    raise ConfigurationError(
        f"{printable(flag)}: is neither an option of this command nor of a model{hint or _MORE}"
    )


_MORE: Final = (
    f"; `lmi-backend options WORD` finds one. What only a newer engine has is written --{PREFIX}…"
)
