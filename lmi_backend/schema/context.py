"""What a model's options say about its clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from lmi_backend.plan.engine_plan import Dialect

DEFAULT_NAME: Final = "lmi"
"""What LMI calls a model to its clients."""


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
    served_names: tuple[str, ...] = ()
    """Names by which OpenAI bodies ask for it, beside Triton's."""
    root: str = ""
    engine: str = ""
    version: str = ""
    max_model_len: int = 0
    is_custom: bool = False
    """Whether the user's own code reads the bodies."""
