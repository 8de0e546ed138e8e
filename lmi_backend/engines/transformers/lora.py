"""LoRA adapters by name. PEFT applies one to the whole model, so requests take turns."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from typing import Any

from lmi_backend.errors import RequestError


class NoAdapters:
    """For a model that takes no LoRA adapters."""

    def check(self, name: str) -> None:
        """Raise RequestError if no adapter has this name; the base model's is empty."""
        if name:
            raise RequestError("is not served by this engine", field="adapter", value=name)

    def load(self, name: str, folder: str) -> None:
        """Make an adapter known, or replace it; the model must not be in use.

        Raises:
            RequestError: the library cannot load it.
        """
        self.check(name)

    def unload(self, name: str) -> None:
        """Forget an adapter; the model must not be in use."""
        self.check(name)

    def use(self, name: str) -> None:
        """Apply an adapter to the model from now on; none if the name is empty."""


class PeftAdapters(NoAdapters):
    """The LoRA adapters of one model."""

    def __init__(self, model: Any, folders: Mapping[str, str]) -> None:
        self._model = model
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._known: dict[str, str] = {}
        self._used = ""
        for name, folder in folders.items():
            self.load(name, folder)

    def check(self, name: str) -> None:
        if name and name not in self._known:
            known = ", ".join(self._known) or "none: option.enable_lora is off or adapters/ empty"
            raise RequestError("is unknown", field="adapter", value=name, accepted=known)

    def load(self, name: str, folder: str) -> None:
        # PEFT makes its name part of module names, which have no dots.
        own = f"adapter{next(self._numbers)}"
        try:
            self._model.load_adapter(folder, adapter_name=own)
            self._model.disable_adapters()
        except (OSError, ValueError, RuntimeError, ImportError) as error:
            problem = f"cannot be loaded by PEFT: {error}"
            raise RequestError(problem, field="adapter", value=name) from error
        with self._lock:
            before = self._known.get(name)
            self._known[name] = own
        if before is not None:
            self._model.delete_adapter(before)

    def unload(self, name: str) -> None:
        self._model.delete_adapter(self._known.pop(name))

    def use(self, name: str) -> None:
        if name == self._used:
            return
        if name:
            self.check(name)
            self._model.set_adapter(self._known[name])
            self._model.enable_adapters()
        else:
            self._model.disable_adapters()
        self._used = name
