"""The variables of AWS's vLLM images: each SM_VLLM_* is a flag of vLLM's command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from lmi_backend.options.option import PREFIX
from lmi_backend.options.setting import Setting
from lmi_backend.options.table import VARIABLES

_IMAGE: Final = "SM_VLLM_"
_OFF: Final = "no_"
_ORIGIN: Final = "environment"


def flags(environment: Mapping[str, str]) -> Iterator[tuple[str, Setting]]:
    """Yield (key, setting) of each flag that is an option; an empty value is a flag without one."""
    for variable, value in sorted(environment.items()):
        name = variable.removeprefix(_IMAGE).lower()
        if name == variable.lower() or not name or variable in VARIABLES:
            continue
        text = value or "true"
        if name.startswith(_OFF) and text == "true":
            name, text = name.removeprefix(_OFF), "false"
        yield PREFIX + name, Setting(variable, text, _ORIGIN)
