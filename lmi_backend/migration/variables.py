"""The variables of a container: their names, and those of the machine itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_OF_MACHINES: Final = frozenset(
    {"PATH", "HOME", "HOSTNAME", "LD_LIBRARY_PATH", "PYTHONPATH", "PWD", "SHELL", "USER", "TMPDIR"}
)


def without_machine(variables: Mapping[str, str]) -> dict[str, str]:
    """Return variables without those of the machine."""
    return {name: value for name, value in variables.items() if name not in _OF_MACHINES}


def why_left(name: str, value: str) -> str:
    """Return why a variable that sets no option is not carried over."""
    if name in _OF_MACHINES:
        return "it describes the old machine"
    if not value:
        return "it is empty"
    return "no option; if the engine or your own code reads it, set it where the server runs"
