"""Where settings come from, in LMI's order of weight.

A few variables win over the file: SageMaker's, and the engine and devices that SERVING_LOAD_MODELS
names for this folder. Then the file; then OPTION_* and SERVING_*; then SM_VLLM_* of AWS's vLLM
images (`vllm_image.py`); then bare names such as TENSOR_PARALLEL_DEGREE.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from lmi_backend.options.model_store import LOAD_MODELS, model_urls
from lmi_backend.options.option import PREFIX, AnyOption
from lmi_backend.options.setting import WrittenSetting
from lmi_backend.options.table import OPTIONS, VARIABLES

FILE_NAME = "serving.properties"
ORIGIN = "environment"

_BY_VARIABLE: dict[str, str] = {
    option.variable: option.name for option in reversed(OPTIONS) if option.variable
}
SERVING_VARIABLES = frozenset(
    name for name in (*_BY_VARIABLE, *VARIABLES) if name.startswith("SERVING_")
)
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


def bare(environment: Mapping[str, str], option: AnyOption) -> WrittenSetting | None:
    """Return what the bare variables say of an option, if they say something."""
    for variable in option.env:
        if environment.get(variable):
            return WrittenSetting(variable, environment[variable], ORIGIN)
    for variable in option.inverse_env:
        if value := environment.get(variable):
            return WrittenSetting(variable, _OPPOSITE.get(value.lower(), value), ORIGIN)
    return None


def unknown(environment: Mapping[str, str]) -> Iterator[WrittenSetting]:
    """Yield SERVING_* variables that mean nothing, as misspelt ones do."""
    for variable, value in sorted(environment.items()):
        if value and variable.startswith("SERVING_") and variable not in SERVING_VARIABLES:
            yield WrittenSetting(variable, value, ORIGIN)


def _key(variable: str) -> str | None:
    if variable in _BY_VARIABLE:
        return _BY_VARIABLE[variable]
    stem = variable.removeprefix("OPTION_")
    if stem == variable or not stem:
        return None
    # LMI lower-cases a name that is all upper case, and keeps any other.
    return PREFIX + (stem.lower() if stem.upper() == stem else stem)
