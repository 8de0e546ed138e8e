"""Judge a value by what one release of an engine takes, as its command line would."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from lmi_backend.options.hints import closest
from lmi_backend.options.signature import ANY_CASE, SCALED, Argument, Signature
from lmi_backend.options.spec import implementations

_MEMBER: Final = re.compile(r"(?:'[^']*(?:'|\Z)|\[[^\]]*(?:\]|\Z)|[^|'\[])+")
_COLLECTION: Final = re.compile(r"(?:list|set|tuple)(?:\[(.*)\])?")
_SCALED_NUMBER: Final = re.compile(r"\d+[kKmMgGtT]?|\d+\.\d+[kmgt]")
_PLAIN: Final = frozenset({"bool", "str", "int", "float", "dict", "None"})


def problem_of(argument: Argument, text: str) -> str:
    """Return why vLLM's command line would not take a text for an argument; empty if it would."""
    members = members_of(argument.type)
    items = next((match for each in members if (match := _COLLECTION.fullmatch(each))), None)
    # A type of several, such as `dict | str`, is taken as text first.
    if "str" in members and not items:
        return ""
    if "bool" in members:
        return _problem(text.lower() in ("true", "false"), "true or false")
    if "None" in members and text in ("", "None"):
        return ""
    if items is None:
        return _of_one(argument, members, text)
    # A list as we hand it on: JSON, or values with commas between.
    given = _items(text)
    if items[1] is None or not isinstance(given, list):
        return _problem(items[1] is None, "values with commas between, or a JSON list")
    inner = members_of(items[1])
    texts = [] if "str" in inner else [str(item).strip() for item in given]
    return next(filter(None, (_of_one(argument, inner, each) for each in texts)), "")


def value_of(kind: str, text: str) -> Any:
    """Return the value that a text is, by the type of its argument.

    Args:
        text: one that `problem_of` finds nothing wrong with.
    """
    members = members_of(kind)
    if "bool" in members:
        return text.lower() == "true"
    if "None" in members and text in ("", "None"):
        return None
    if any(map(_COLLECTION.fullmatch, members)):
        return [item.strip() if isinstance(item, str) else item for item in _items(text)]
    if words := words_of(members):
        return next((word for word in words if str(word) == text), text)
    made = next((kind for kind in ("str", "int", "float") if kind in members), "")
    makers: dict[str, Callable[[str], Any]] = {"str": str, "int": int, "float": float}
    return makers.get(made, json_of)(text)


def is_text_for(kind: str) -> bool:
    """Tell whether `value_of` makes a value of a type: it makes none of classes."""
    return all(
        each in _PLAIN or bool(words_of([each])) or each in ("list[str]", "set[str]")
        for each in members_of(kind)
    )


def members_of(kind: str) -> list[str]:
    """Return the members of a union."""
    return [each.strip() for each in _MEMBER.findall(kind)]


def words_of(members: Iterable[str]) -> list[str | int]:
    """Return the members that are values, not types."""
    quoted = (each for each in members if each[0] in "'-0123456789")
    return [each.strip("'") if each[0] == "'" else int(each) for each in quoted]


def unknown_key(keys: Iterable[str], given: Iterable[str], release: str) -> str:
    """Return why an object cannot have one of the keys given; empty if it can have all."""
    accepted = list(keys)
    # vLLM reads both.
    unknown = next((key for key in given if key.replace("-", "_") not in accepted), None)
    if unknown is None:
        return ""
    hint = closest(unknown, accepted)
    return f"has a key that {release} does not know, {json.dumps(unknown)}{hint}"


def unknown_word(kind: str, value: object, release: str) -> str:
    """Return why a value is none of those that a type lists; empty if it lists none."""
    members = [each for each in members_of(kind) if each != "None"]
    words = words_of(members)
    if not words or len(words) < len(members) or value in words:
        return ""
    return f"is not what {release} takes; accepted: {', '.join(map(str, words))}"


def _of_one(argument: Argument, members: list[str], text: str) -> str:
    if words := [str(word) for word in words_of(members)]:
        if argument.flag == ANY_CASE:
            text = text.lower().replace("-", "_")
        return _problem(text in words, ", ".join(words))
    if "int" in members:
        if argument.flag == SCALED:
            is_number = _SCALED_NUMBER.fullmatch(text) is not None
            return _problem(is_number, "a whole number, also as 32k or 32K")
        return _problem(_converts(int, text), "a whole number")
    if "float" in members:
        return _problem(_converts(float, text), "a number")
    # Unions with a class of unknown reading are text to vLLM.
    configs = ("dict", "None", "Config", "ConfigArgs")
    is_object = all(each.endswith(configs) for each in members)
    return _problem(not is_object or isinstance(json_of(text), dict), "a JSON object")


def _problem(takes: bool, accepted: str) -> str:
    return "" if takes else f"is not what the engine takes; accepted: {accepted}"


def _items(text: str) -> Any:
    return json_of(text) if text.lstrip().startswith("[") else text.split(",")


def json_of(text: str) -> Any:
    """Return the value of a JSON text; None of one that is none, or too deep to be read."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _converts(kind: Callable[[str], object], text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


_UNSET = ("", "none")
"""Texts that the engine reads as no value, in any case."""


def release_of(signature: Signature) -> str:
    """Return the engine and its version, as people write them."""
    version = signature.version.partition("+")[0]
    return f"{implementations()[signature.engine].title} {version}".rstrip()


def problem_of_text(signature: Signature, name: str, text: str) -> str:
    """Return why a release does not take a text for an argument; empty if it takes it."""
    declared = signature.arguments.get(name) or signature.server[name]
    if problem := problem_of(declared, text):
        return problem
    given = json_of(text) if name in signature.objects else None
    return _problem_of_object(signature, name, given) if isinstance(given, dict) else ""


def problem_of_value(signature: Signature, path: str, value: Any) -> str:
    """Return why a release does not take a value; empty if it takes it.

    Args:
        path: the argument, or with a dot a key of an argument that is an object.
    """
    name, _, key = path.partition(".")
    declared = signature.arguments.get(name) or signature.server.get(name)
    if declared is None:
        return f"sets {name}, which {release_of(signature)} does not have"
    if key or isinstance(value, dict):
        return _problem_of_object(signature, name, {key: value} if key else value)
    is_word = isinstance(value, (str, int))
    return unknown_word(declared.type, value, release_of(signature)) if is_word else ""


def problem_of_word(signature: Signature, name: str, value: Any, *, may_be_added: bool) -> str:
    """Return why a release fails with a value that plugins may add; empty if it has the value.

    Args:
        may_be_added: whether something that runs with the engine may add the value.
    """
    words = signature.words.get(name, ())
    text = str(value or "")
    if not words or text in words or text.lower() in (*_UNSET, *words):
        return ""
    release, has = release_of(signature), ", ".join(words)
    if may_be_added:
        return f"{release} has it only from a plugin, else the load fails; it has {has}"
    return f"is not what {release} takes, and no plugin is installed that adds it; accepted: {has}"


def _problem_of_object(signature: Signature, name: str, given: Mapping[str, Any]) -> str:
    keys: Mapping[str, Argument] = signature.objects.get(name, {})
    if not keys:
        return ""
    if problem := unknown_key(keys, given, release_of(signature)):
        return problem
    for key, value in given.items():
        declared = keys[key.replace("-", "_")]
        if isinstance(value, (str, int)) and (
            problem := unknown_word(declared.type, value, release_of(signature))
        ):
            return f"has {json.dumps({key: value})[1:-1]}, which {problem}"
    return ""
