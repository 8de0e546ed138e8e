"""What runs a model today, as all sources say it together, and its variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lmi_backend.migrate.fates import Gpus

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


@dataclass
class PresentServer:
    """What runs a model today."""

    folder: Path | None = None
    environment: dict[str, str] = field(default_factory=dict)
    """Every variable of the container."""
    gpus: Gpus | None = None
    accelerators: int = 0
    """GPUs of one copy of the model; 0: all of the instance."""
    copies: int = 0
    """Of an inference component; 0: there is none."""
    replicas: int = 0
    """0: not known."""
    archive: str = ""
    """The archive of the model on S3."""
    capture: str = ""
    """Where SageMaker writes requests and answers."""
    changes: list[str] = field(default_factory=list)
    decisions: list[str] = field(default_factory=list)

    @property
    def variables(self) -> dict[str, str]:
        """The variables without those of the machine."""
        return without_machine(self.environment)
