"""Where settings come from, in LMI's order of weight.

A few variables win over the file: SageMaker's, and the engine and devices that SERVING_LOAD_MODELS
names for this folder. Then the file; then OPTION_* and SERVING_*; then SM_VLLM_* of AWS's vLLM
images (`vllm_image.py`); then bare names such as TENSOR_PARALLEL_DEGREE.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Final

from lmi_backend.options.engine_spec import SPECS
from lmi_backend.options.foreign_words import meanings_of, server_of
from lmi_backend.options.hints import closest
from lmi_backend.options.model_store import LOAD_MODELS, model_urls
from lmi_backend.options.option import PREFIX, AnyOption
from lmi_backend.options.setting import WrittenSetting
from lmi_backend.options.signature import recorded_signature
from lmi_backend.options.table import KEYS, OPTIONS, VARIABLES, find_option, live_keys

FILE_NAME = "serving.properties"
ORIGIN = "environment"

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
_TGI: Final = ("sharded", "speculate")
"""Variables of TGI's launcher without an underscore that are no option's name here."""
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
        return f"it is no variable of {engine}, on which this model runs"
    word = variable.lower()
    if word.startswith(_RESERVED):
        hint = closest(variable, (*_SERVING, *live_keys(engine)))
        return f"LMI has no such variable{hint}"
    # Short names mean anything in a shell.
    if "_" not in word and not (variable.isupper() and (word in _TGI or PREFIX + word in KEYS)):
        return ""
    if name := _name_of(word, engine):
        return f"LMI reads {name}"
    server = server_of(word) if "_" in word else ""
    return f"it is an option of {server} that has no counterpart" if server else ""


def _name_of(word: str, engine: str) -> str:
    """Return the variable that LMI has for a bare name; empty if that is no option's name."""
    for key in (PREFIX + word, word, *meanings_of(word)):
        option = find_option(key, engine)
        if option and option.variable and option.status == "mapped":
            return option.variable
    known = recorded_signature(SPECS[engine].implementation.name)
    return f"OPTION_{word.upper()}" if known and word in known.arguments else ""


def _key(variable: str) -> str | None:
    if variable in _BY_VARIABLE:
        return _BY_VARIABLE[variable]
    stem = variable.removeprefix("OPTION_")
    if stem == variable or not stem:
        return None
    # LMI lower-cases a name that is all upper case, and keeps any other.
    return PREFIX + (stem.lower() if stem.upper() == stem else stem)
