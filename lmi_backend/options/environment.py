"""Read LMI's environment variables as settings.

Order of weight, as in LMI's server: a few SageMaker variables win over the file; then the file;
then OPTION_* and SERVING_*; then bare names such as TENSOR_PARALLEL_DEGREE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmi_backend.options.option import PREFIX, Option
from lmi_backend.options.setting import Setting
from lmi_backend.options.table import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

ORIGIN = "environment"

_BY_VARIABLE = {option.variable: option.name for option in OPTIONS}


def overriding(environment: Mapping[str, str]) -> list[tuple[str, Setting]]:
    """Return (key, setting) of the variables that win over the file."""
    return [
        (option.name, Setting(variable, environment[variable], ORIGIN))
        for option in OPTIONS
        for variable in option.overriding_env
        if environment.get(variable)
    ]


def prefixed(environment: Mapping[str, str]) -> list[tuple[str, Setting]]:
    """Return (key, setting) of OPTION_* and SERVING_*; a SERVING_* that is no option is left."""
    return [
        (key, Setting(variable, value, ORIGIN))
        for variable, value in sorted(environment.items())
        if value and (key := _key(variable))
    ]


def bare(environment: Mapping[str, str], option: Option[object]) -> Setting | None:
    """Return what the bare variables say of an option, if they say something."""
    for variable in option.env:
        if environment.get(variable):
            return Setting(variable, environment[variable], ORIGIN)
    return None


def _key(variable: str) -> str | None:
    if variable in _BY_VARIABLE:
        return _BY_VARIABLE[variable]
    stem = variable.removeprefix("OPTION_")
    if stem == variable or not stem:
        return None
    # LMI lower-cases a name that is all upper case, and keeps any other.
    return PREFIX + (stem.lower() if stem.upper() == stem else stem)
