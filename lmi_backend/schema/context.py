"""What a model's options say about its clients."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from lmi_backend.engine_config import ClientSettings


@dataclass(frozen=True)
class Context:
    """What is known of the model when a body is read."""

    clients: ClientSettings = field(default_factory=ClientSettings)
    adapters: Collection[str] = field(default_factory=tuple)
    """LoRA adapters known now, in order; a live view."""
    is_custom: bool = False
    """Whether the user's own code reads the bodies."""
    has_lora: bool = False
    """Whether LoRA adapters are served, known or not."""
