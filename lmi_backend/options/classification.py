"""What becomes of a key: the table says it, else the engine's signature, else other engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmi_backend.options.argument_types import json_of, problem_of, unknown_key, unknown_word
from lmi_backend.options.engine_spec import SPECS, implementations
from lmi_backend.options.hints import closest
from lmi_backend.options.option import PREFIX, Status
from lmi_backend.options.resolve import LmiOptions
from lmi_backend.options.signature import NO_FLAG, Signature, recorded_signature, signature
from lmi_backend.options.table import KEYS, find_option, live_keys


def classify_unknown(options: LmiOptions, python: str) -> dict[str, Status]:
    """Return what becomes of each key that is not in the table, by the engine's argument name.

    `python` is the interpreter whose installation of the engine is asked.
    """
    if not options.passthrough:
        return {}
    spec = options.choice.spec
    known = signature(spec.implementation.name, python)
    return {
        name: _judged(status_of(PREFIX + name, spec.name, known), name, setting.value, known)
        for name, setting in options.passthrough.items()
    }


def _judged(status: Status, name: str, text: str, known: Signature | None) -> Status:
    """Return the status, or a refusal of a text that the argument's type does not take."""
    argument = known.arguments.get(name) if known else None
    source = implementations()[known.engine].source if known else None
    if status.word != "passed" or argument is None or source is None or not source.has_flags:
        return status
    problem = problem_of(name, argument.type, text)
    given = json_of(text) if known and not problem and name in known.object_keys else None
    if known and isinstance(given, dict):
        problem = unknown_key(known.object_keys[name], given)
    return Status("refused", problem) if problem else status


def check_words(options: LmiOptions, arguments: Mapping[str, Any], python: str) -> list[str]:
    """Refuse a value of a mapped option that is none of the words its argument takes.

    Returns:
        What only a plugin of the engine could take, for people.

    Raises:
        OptionError: it is none of them.
    """
    implementation = options.choice.spec.implementation
    if implementation.source is None or not implementation.source.has_flags:
        return []
    known = signature(implementation.name, python)
    doubts: list[str] = []
    for name in options.values if known else ():
        option = find_option(name, options.choice.engine)
        argument = option.argument_of(implementation) if option else ""
        declared = known.arguments.get(argument) if known else None
        value = arguments.get(argument)
        if known is None or option is None or declared is None:
            continue
        problem = unknown_word(declared.type, value) if isinstance(value, str | int) else ""
        if isinstance(value, dict) and (keys := known.object_keys.get(argument)):
            problem = unknown_key(keys, value)
        if problem:
            raise options.error(option, problem)
        words = known.words.get(argument)
        if words and value not in (None, "", *words):
            doubts.append(
                f"{options.settings[name]}: {implementation.title} {known.version} has it only "
                f"from a plugin, else the load fails; it has {', '.join(words)}"
            )
    return doubts


def status_of(key: str, engine: str, known: Signature | None) -> Status:
    """Return the status of a key under an engine whose arguments are these, if they are known."""
    option = find_option(key, engine)
    if option is not None:
        return option.status_under(engine)
    name = key.removeprefix(PREFIX)
    implementation = SPECS[engine].implementation
    runs_on = implementation.name
    if known is not None and name in known.arguments:
        if known.arguments[name].flag == NO_FLAG:
            return Status(
                "refused", f"is set by {runs_on} {known.version} itself, which has no flag"
            )
        return Status("passed", f"{runs_on} {name}")
    if other := _owner(key, name):
        return Status("ignored", _of_another(key, other, engine))
    if implementation.takes_any_option or _may_be_newer(key, known):
        return Status("passed", f"{runs_on} {name}, which {runs_on} itself has to accept")
    return Status("refused", _unknown(key, engine, known))


def _owner(key: str, name: str) -> str:
    """Return another engine that knows the key, and uses it if one does; or nothing."""
    status = {
        engine: row.status_under(engine) for row in KEYS.get(key, ()) for engine in row.engines
    }
    live = [engine for engine, said in status.items() if said.word == "mapped"]
    for engine, spec in SPECS.items():
        record = recorded_signature(spec.implementation.name)
        if engine not in status and record and name in record.arguments:
            live.append(engine)
    return min(live or status, key=lambda engine: SPECS[engine].order, default="")


def _of_another(key: str, other: str, engine: str) -> str:
    """Say why another engine's option does nothing; only where it would, how to choose that one."""
    detail = f"it is an option of {other}, and this model runs on {engine}"
    row = find_option(key, other)
    if row is None or row.status == "mapped":
        return f"{detail} ({SPECS[other].how_to_choose} chooses {other})"
    too = " too" if row.status == "ignored" else ""
    return f"{detail}; there{too} it is {row.status}: {row.reason}"


def _may_be_newer(key: str, known: Signature | None) -> bool:
    """Tell whether a release that we have not seen may have it: it is like nothing we know.

    Only where no engine is installed that could be asked.
    """
    return known is not None and known.is_recorded and not closest(key, _known_keys(known))


def _unknown(key: str, engine: str, known: Signature | None) -> str:
    implementation = SPECS[engine].implementation.name
    arguments = (PREFIX + name for name in (known.arguments if known else ()))
    # Not to a key that would be ignored or refused next.
    hint = closest(key, (*live_keys(engine), *arguments))
    if known is None:
        return f"is not an option of LMI for {implementation}{hint}"
    return f"is neither an option of LMI nor an argument of {implementation} {known.version}{hint}"


def _known_keys(known: Signature | None) -> list[str]:
    arguments = known.arguments if known else ()
    return [*KEYS, *(PREFIX + name for name in arguments)]
