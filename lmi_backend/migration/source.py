"""What runs a model today, as all sources say it together."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from lmi_backend.migration.instances import Gpus
from lmi_backend.migration.variables import without_machine


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
