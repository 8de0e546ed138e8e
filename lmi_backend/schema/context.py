"""What a model's options say about its clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from lmi_backend.plan.engine_plan import Dialect


@dataclass(frozen=True)
class Context:
    """How bodies are read and answered where they do not say it themselves."""

    dialect: Dialect = "async"
    """Whose defaults and words an LMI body gets."""
    output_formatter: str = ""
    tgi_compat: bool = False
    is_embedding: bool = False
    """Whether `inputs` are to become vectors."""
    normalize: bool = True
    """Whether vectors have length 1."""
    adapters: Collection[str] = field(default_factory=tuple)
    """LoRA adapters known now, in order; a live view."""
    is_custom: bool = False
    """Whether the user's own code reads the bodies."""
