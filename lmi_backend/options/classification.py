"""What becomes of a key: the table says it, else the engine's signature, else other engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from lmi_backend.options.argument_types import (
    is_text_for,
    problem_of,
    problem_of_text,
    problem_of_value,
    problem_of_word,
    release_of,
)
from lmi_backend.options.hints import closest
from lmi_backend.options.signature import (
    NO_FLAG,
    Argument,
    Signature,
    other_signature,
    recorded_signature,
    signature_of,
)
from lmi_backend.options.spec import (
    PREFIX,
    SPECS,
    AnyOption,
    LmiOptions,
    Status,
    WrittenSetting,
    implementations,
)
from lmi_backend.options.table import KEYS, find_option, live_keys
from lmi_backend.options.table.variables import SERVER_FLAGS
from lmi_backend.options.table.vllm import FRONT_END

LACKS: Final = "does not have"
"""Says that a release of our record has no argument of the name, so that only a newer one may."""


def classify_unknown(options: LmiOptions, python: str) -> dict[str, Status]:
    """Return what becomes of each key that is not in the table, by the engine's argument name.

    `python` is the interpreter that has the engine installed.
    """
    if not options.passthrough:
        return {}
    spec = options.choice.spec
    signature = signature_of(options, python)
    return {
        name: _judged(
            status_of(PREFIX + name, spec.name, signature), name, setting.value, signature
        )
        for name, setting in options.passthrough.items()
    }


def _judged(status: Status, name: str, text: str, signature: Signature | None) -> Status:
    """Return the status, or a refusal of a text that the argument's type does not take."""
    source = implementations()[signature.engine].source if signature else None
    if name in SERVER_FLAGS and text.lower() in ("false", "0"):
        return Status("ignored", "what is off is not missed")
    if status.word != "passed" or signature is None or source is None or not source.has_flags:
        return status
    if name in signature.opposites:
        problem = problem_of(Argument("bool", ""), text)
    elif name in signature.arguments or name in signature.server:
        problem = problem_of_text(signature, name, text)
    else:
        return status
    return Status("refused", problem) if problem else status


def check_words(
    options: LmiOptions, arguments: Mapping[str, Any], python: str, *, has_code: bool
) -> list[str]:
    """Refuse a value of an option that is none of those that the release planned for takes.

    Args:
        has_code: whether code of the user runs, which may add values to the engine.

    Returns:
        What only a plugin of the engine could take, for people.

    Raises:
        OptionError: it is none of them.
    """
    implementation = options.choice.spec.implementation
    if implementation.source is None or not implementation.source.has_flags:
        return []
    signature = signature_of(options, python)
    if signature is None:
        return []
    for option, path, value in _mapped(options, arguments):
        if problem := problem_of_value(signature, path, value):
            raise options.error(option, problem)
    # What has no plugin installed may still name a file that is one.
    may_be_added = has_code or signature.is_recorded or signature.has_plugins
    may_be_added |= any(name.endswith("_plugin") for name in options.passthrough)
    unknown = _unknown_words(options, arguments, signature, may_be_added=may_be_added)
    if not may_be_added:
        for setting, problem in unknown:
            raise setting.error(problem)
    return [f"{setting}: {problem}" for setting, problem in unknown]


def _mapped(
    options: LmiOptions, arguments: Mapping[str, Any]
) -> Iterator[tuple[AnyOption, str, Any]]:
    """Yield the options of the table that set an argument, where it is, and its value."""
    for name in options.values:
        option = find_option(name, options.choice.engine)
        if option is None:
            continue
        path = option.argument_of(options.choice.spec.implementation)
        first, _, key = path.partition(".")
        value = arguments.get(first)
        if key and isinstance(value, dict):
            value = value.get(key)
        if option.plan_field.startswith(FRONT_END):
            path, value = option.plan_field.removeprefix(FRONT_END), options[option]
        if path and value is not None:
            yield option, path, value


def _unknown_words(
    options: LmiOptions, arguments: Mapping[str, Any], signature: Signature, *, may_be_added: bool
) -> Iterator[tuple[WrittenSetting, str]]:
    """Yield the settings whose value the release itself does not have, and what is wrong."""
    passed = {name: (setting, setting.value) for name, setting in options.passthrough.items()}
    mapped = {
        path.rpartition(".")[2]: (options.settings[option.name], value)
        for option, path, value in _mapped(options, arguments)
    }
    for name, (setting, value) in {**passed, **mapped}.items():
        if problem := problem_of_word(signature, name, value, may_be_added=may_be_added):
            yield setting, problem


def turned(signature: Signature | None, name: str, text: str) -> tuple[str, str]:
    """Return an argument and its text; `disable_x=true` is how some releases write `enable_x`."""
    if signature is None or name in signature.arguments or name not in signature.opposites:
        return name, text
    return signature.opposites[name], "false" if text.lower() == "true" else "true"


def status_of(key: str, engine: str, signature: Signature | None) -> Status:
    """Return the status of a key under an engine whose arguments are these, if they are known."""
    option = find_option(key, engine)
    if option is not None:
        return option.status_under(engine)
    name = key.removeprefix(PREFIX)
    implementation = SPECS[engine].implementation
    runs_on = implementation.name
    status = _status_in_release(name, engine, signature) if signature is not None else None
    if status is not None:
        return status
    if other := _owner(key, name, engine):
        return Status("ignored", _of_another(key, other, engine))
    if implementation.takes_any_option:
        return Status("passed", f"{runs_on} {name}, which {runs_on} itself has to accept")
    if signature is not None and _may_be_newer(key, signature):
        lacks = f"which {runs_on} {signature.version} {LACKS}; a newer {runs_on} has to accept it"
        return Status("passed", f"{runs_on} {name}, {lacks}")
    return Status("refused", _unknown(key, engine, signature))


def _status_in_release(name: str, engine: str, signature: Signature) -> Status | None:
    """Return the status of what a release has under this name; None if it has nothing so."""
    runs_on = SPECS[engine].implementation.name
    if signature.listener and (status := SERVER_FLAGS.get(name)):
        is_refused = status.word == "refused"
        return Status(status.word, f"is not supported: {status.detail}") if is_refused else status
    if name not in signature.arguments:
        return _status_of_server(name, engine, signature)
    if signature.arguments[name].flag == NO_FLAG:
        return Status(
            "refused", f"is set by {runs_on} {signature.version} itself, which has no flag"
        )
    return Status("passed", f"{runs_on} {name}")


def _status_of_server(name: str, engine: str, signature: Signature) -> Status | None:
    """Return the status of a flag that sets no argument of the engine by its own name."""
    runs_on, release = SPECS[engine].implementation.name, release_of(signature)
    if name in signature.server:
        if is_text_for(signature.server[name].type):
            return Status("passed", f"{runs_on} {name}, of its HTTP server")
        return Status("refused", f"takes objects of {release}, which no text here makes")
    if name in signature.listener:
        listener = f"it is for the HTTP listener of {release}, which is not started"
        return Status("ignored", f"{listener}; the front end and Triton listen here")
    if target := signature.opposites.get(name):
        if find_option(PREFIX + target, engine):
            return Status("refused", f"turns {PREFIX}{target} off; accepted: that option")
        return Status("passed", f"{runs_on} {target}, turned over")
    return None


def _owner(key: str, name: str, mine: str) -> str:
    """Return another engine that knows the key, and uses it if one does; or nothing."""
    status = {
        engine: row.status_under(engine) for row in KEYS.get(key, ()) for engine in row.engines
    }
    live = [engine for engine, each in status.items() if each.word == "mapped"]
    for engine, spec in SPECS.items():
        record = recorded_signature(spec.implementation.name)
        is_other = spec.implementation.name != SPECS[mine].implementation.name
        if engine not in status and is_other and record and name in record.arguments:
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


def _may_be_newer(key: str, signature: Signature) -> bool:
    """Return whether a release that we have not seen may have it: it is like nothing we know.

    Only where no engine is installed that would know.
    """
    if not signature.is_recorded or other_signature(signature.engine, signature.version):
        return False
    names = [*KEYS, *(PREFIX + name for name in _names(signature))]
    return not closest(key, names)


def _unknown(key: str, engine: str, signature: Signature | None) -> str:
    implementation = SPECS[engine].implementation.name
    if since := _in_our_record(key.removeprefix(PREFIX), signature):
        version = signature.version if signature else ""
        return f"is not an argument of {implementation} {version}; {since}"
    arguments = (PREFIX + name for name in _names(signature))
    # Not to a key that would be ignored or refused next.
    hint = closest(key, (*live_keys(engine), *arguments))
    if signature is None:
        return f"is not an option of LMI for {implementation}{hint}"
    return (
        f"is neither an option of LMI nor an argument of {implementation} {signature.version}{hint}"
    )


def _in_our_record(name: str, signature: Signature | None) -> str:
    """Say that the release of our record has what a release has not; empty if neither has it."""
    record = recorded_signature(signature.engine) if signature else None
    if record is None or signature is None or name not in _names(record):
        return ""
    return f"{record.version} has it"


def _names(signature: Signature | None) -> list[str]:
    return [*signature.arguments, *signature.server, *signature.opposites] if signature else []
