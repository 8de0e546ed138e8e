"""A model that is loaded, as the front end knows it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmi_backend.engine_config import Context, ModelInfo
    from lmi_backend.frontend.connection import ModelConnection
    from lmi_backend.ipc import messages as msg


@dataclass(frozen=True, eq=False)
class Model:
    """A model that is loaded."""

    connection: ModelConnection
    welcome: msg.Welcome

    @property
    def info(self) -> ModelInfo:
        return self.welcome.model

    @property
    def name(self) -> str:
        """What Triton calls it."""
        return self.welcome.model.name

    @property
    def context(self) -> Context:
        """How its clients' bodies are read now."""
        return self.welcome.context

    def context_of(self, name: str) -> Context:
        """Return how to read bodies of a client that uses one of the model's names."""
        is_adapter = name not in ("", self.name, *self.info.served_names)
        context = self.context
        return (
            replace(context, adapter=name) if is_adapter and name in context.adapters else context
        )

    @property
    def names(self) -> tuple[str, ...]:
        """All names by which a client may call it; LoRA adapters last."""
        return tuple(dict.fromkeys((self.name, *self.info.served_names, *self.context.adapters)))
