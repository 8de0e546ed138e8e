"""Where settings come from, in LMI's order of weight.

A few variables win over the file: SageMaker's, and the engine and devices that SERVING_LOAD_MODELS
names for this folder. Then the file; then OPTION_* and SERVING_*; then SM_VLLM_* of AWS's vLLM
images; then bare names such as TENSOR_PARALLEL_DEGREE.

Each SM_VLLM_* is a flag of vLLM's command line. As the images of August 2026 read them, `true` or
nothing is a flag without a value, and `false` leaves the flag out. A JSON array, or JSON objects
with blanks between, are several arguments.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from lmi_backend.options.argument_types import json_of
from lmi_backend.options.hints import closest, meanings_of
from lmi_backend.options.model_store import LOAD_MODELS, model_urls
from lmi_backend.options.signature import recorded_signature
from lmi_backend.options.spec import PREFIX, SPECS, AnyOption, WrittenSetting
from lmi_backend.options.table import KEYS, OPTIONS, VARIABLES, find_option, live_keys

FILE_NAME = "serving.properties"
ORIGIN = "environment"
COMMAND_LINE = "command line"

_BY_VARIABLE: dict[str, str] = {
    option.variable: option.name for option in reversed(OPTIONS) if option.variable
}
_BARE: Final = frozenset(
    name
    for option in OPTIONS
    for name in (*option.env, *option.inverse_env, *option.overriding_env)
)
_SERVING: Final = frozenset(
    name for name in (*_BY_VARIABLE, *VARIABLES) if name.startswith("SERVING_")
)
_RESERVED: Final = ("serving_", "sagemaker_", "option_", "option.", "options_", "options.")
"""Beginnings of variables that are for LMI or its server, or are meant to be, in small letters."""
_TGI: Final = (
    "sharded", "speculate", "max_batch_total_tokens", "max_waiting_tokens", "max_best_of",
    "waiting_served_ratio", "max_client_batch_size", "max_stop_sequences", "max_top_n_tokens",
    "validation_workers", "messages_api_enabled", "payload_limit", "rope_scaling", "rope_factor",
)  # fmt: skip
"""Variables of TGI's launcher, in small letters, that are no option's name here."""
_OPPOSITE = {"true": "false", "1": "false", "false": "true", "0": "true"}


def overriding(
    environment: Mapping[str, str], folder: Path
) -> Iterator[tuple[str, WrittenSetting]]:
    """Yield (key, setting) of what wins over the file."""
    for entry in model_urls(environment.get(LOAD_MODELS, "")):
        if not entry.is_for(folder):
            continue
        if entry.engine:
            yield "engine", WrittenSetting(LOAD_MODELS, entry.engine, ORIGIN)
        if entry.devices:
            yield "load_on_devices", WrittenSetting(LOAD_MODELS, entry.devices, ORIGIN)
    for option in OPTIONS:
        for variable in option.overriding_env:
            if environment.get(variable):
                yield option.name, WrittenSetting(variable, environment[variable], ORIGIN)


def prefixed(environment: Mapping[str, str]) -> Iterator[tuple[str, WrittenSetting]]:
    """Yield (key, setting) of OPTION_* and SERVING_*; a SERVING_* that is no option is left."""
    for variable, value in sorted(environment.items()):
        # SERVING_LOAD_MODELS names engines, which win over the file; as a key it says nothing.
        if value and variable != LOAD_MODELS and (key := _key(variable)):
            yield key, WrittenSetting(variable, value, ORIGIN)


def bare(environment: Mapping[str, str], option: AnyOption) -> Iterator[WrittenSetting]:
    """Yield what the bare variables say of an option, the one that counts first."""
    for variable in option.env:
        if environment.get(variable):
            yield WrittenSetting(variable, environment[variable], ORIGIN)
    for variable in option.inverse_env:
        if value := environment.get(variable):
            yield WrittenSetting(variable, _OPPOSITE.get(value.lower(), value), ORIGIN)


def unknown(
    environment: Mapping[str, str], engine: str, read: Container[str]
) -> Iterator[tuple[WrittenSetting, str]]:
    """Yield the variables that look like options and are not read, with the reason."""
    for variable, value in sorted(environment.items()):
        if not value or variable in read or variable in VARIABLES:
            continue
        if reason := _why_unread(variable, engine):
            yield WrittenSetting(variable, value, ORIGIN), reason


def _why_unread(variable: str, engine: str) -> str:
    """Return why nothing reads a variable; empty if nobody would think that it is an option."""
    if variable in _BARE:
        return f"it is not a variable of {engine}, on which this model runs"
    word = variable.lower()
    if word.startswith(_RESERVED):
        hint = closest(variable, (*_SERVING, *live_keys(engine)))
        return f"LMI has no such variable{hint}"
    # Short names mean anything in a shell.
    if "_" not in word and not (variable.isupper() and (word in _TGI or PREFIX + word in KEYS)):
        return ""
    if name := _name_of(word, engine):
        return f"LMI reads {name}"
    return "nothing reads this variable of Text Generation Inference" if word in _TGI else ""


def _name_of(word: str, engine: str) -> str:
    """Return the variable that LMI has for a bare name; empty if that is no option's name."""
    for key in (PREFIX + word, word, *meanings_of(word)):
        option = find_option(key, engine)
        if option and option.variable and option.status == "mapped":
            return option.variable
    record = recorded_signature(SPECS[engine].implementation.name)
    # `check` says of OPTION_* what becomes of one that is another engine's, or has ended.
    is_option = PREFIX + word in KEYS or (record is not None and word in record.arguments)
    return f"OPTION_{word.upper()}" if is_option else ""


def _key(variable: str) -> str | None:
    if variable in _BY_VARIABLE:
        return _BY_VARIABLE[variable]
    stem = variable.removeprefix("OPTION_")
    if stem == variable or not stem:
        return None
    # LMI lower-cases a name that is all upper case, and keeps any other.
    return PREFIX + (stem.lower() if stem.upper() == stem else stem)


_IMAGE: Final = "SM_VLLM_"
_OFF: Final = "no_"
_EMPTY: Final = "AWS's images leave out the flag of an empty list"


def flags(environment: Mapping[str, str]) -> Iterator[tuple[str, WrittenSetting]]:
    """Yield (key, setting) of each flag that is an option."""
    for variable, name, value in _variables(environment):
        if _why_left_out(name, value):
            continue
        text = _text(value) or "true"
        is_off = name.startswith(_OFF) and text == "true"
        key = PREFIX + (name.removeprefix(_OFF) if is_off else name)
        yield key, WrittenSetting(variable, "false" if is_off else text, ORIGIN)


def left_out(environment: Mapping[str, str]) -> Iterator[tuple[WrittenSetting, str]]:
    """Yield each variable that AWS's images make no flag of, and why."""
    for variable, name, value in _variables(environment):
        if reason := _why_left_out(name, value):
            yield WrittenSetting(variable, value, ORIGIN), reason


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
    parsed = json_of(value) if value.startswith("[") else None
    return parsed if isinstance(parsed, list) else None


def _objects(value: str) -> list[Any]:
    """Return the JSON objects that a text is made of; none if it is made of others too."""
    decoder, objects, rest = json.JSONDecoder(), [], value
    while rest.startswith("{"):
        try:
            each, end = decoder.raw_decode(rest)
        except (ValueError, RecursionError):
            return []
        objects.append(each)
        rest = rest[end:].lstrip()
    return [] if rest else objects
