"""Judge a value by what one release of an engine takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lmi_backend.options.argument_types import (
    json_of,
    problem_of,
    unknown_key,
    unknown_word,
)
from lmi_backend.options.engine_spec import implementations
from lmi_backend.options.signature import Argument, Signature

_UNSET = ("", "none")
"""Texts that the engine reads as no value, in any case."""


def release_of(known: Signature) -> str:
    """Return the engine and its version, as people write them."""
    version = known.version.partition("+")[0]
    return f"{implementations()[known.engine].title} {version}".rstrip()


def problem_of_text(known: Signature, name: str, text: str) -> str:
    """Return why a release does not take a text for an argument; empty if it takes it."""
    declared = known.arguments.get(name) or known.server[name]
    if problem := problem_of(declared, text):
        return problem
    given = json_of(text) if name in known.objects else None
    return _problem_of_object(known, name, given) if isinstance(given, dict) else ""


def problem_of_value(known: Signature, path: str, value: Any) -> str:
    """Return why a release does not take a value; empty if it takes it.

    Args:
        path: the argument, or with a dot a key of an argument that is an object.
    """
    name, _, key = path.partition(".")
    declared = known.arguments.get(name) or known.server.get(name)
    if declared is None:
        return f"sets {name}, which {release_of(known)} does not have"
    if key or isinstance(value, dict):
        return _problem_of_object(known, name, {key: value} if key else value)
    is_word = isinstance(value, (str, int))
    return unknown_word(declared.type, value, release_of(known)) if is_word else ""


def problem_of_word(known: Signature, name: str, value: Any, *, may_be_added: bool) -> str:
    """Return why a release fails with a value that plugins may add; empty if it has the value.

    Args:
        may_be_added: whether something that runs with the engine may add the value.
    """
    words = known.words.get(name, ())
    text = str(value or "")
    if not words or text in words or text.lower() in (*_UNSET, *words):
        return ""
    release, has = release_of(known), ", ".join(words)
    if may_be_added:
        return f"{release} has it only from a plugin, else the load fails; it has {has}"
    return f"is not what {release} takes, and no plugin is installed that adds it; accepted: {has}"


def _problem_of_object(known: Signature, name: str, given: Mapping[str, Any]) -> str:
    keys: Mapping[str, Argument] = known.objects.get(name, {})
    if not keys:
        return ""
    if problem := unknown_key(keys, given, release_of(known)):
        return problem
    for key, value in given.items():
        declared = keys[key.replace("-", "_")]
        if isinstance(value, (str, int)) and (
            problem := unknown_word(declared.type, value, release_of(known))
        ):
            return f"has {json.dumps({key: value})[1:-1]}, which {problem}"
    return ""
