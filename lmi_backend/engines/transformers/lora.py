"""LoRA adapters by name. PEFT applies one to the whole model, so requests take turns."""

from __future__ import annotations

import contextlib
import itertools
import threading
from typing import Any

from lmi_backend.adapter_files import without_folder
from lmi_backend.errors import RequestError


class NoAdapters:
    """For a model that takes no LoRA adapters."""

    def check(self, name: str) -> None:
        """Raise RequestError if no adapter has this name; the base model's is empty."""
        if name:
            raise RequestError("is not served by this engine", field="adapter", value=name)

    def load(self, name: str, folder: str, *, is_now: bool = True) -> None:
        """Make an adapter known, or replace it; the model must not be in use.

        Args:
            is_now: load its weights now, not with its first use.

        Raises:
            RequestError: the library cannot load it.
        """
        self.check(name)

    def unload(self, name: str) -> None:
        """Forget an adapter; the model must not be in use."""
        self.check(name)

    def use(self, name: str) -> None:
        """Apply an adapter to the model from now on; none if the name is empty.

        Raises:
            RequestError: the library cannot load it.
        """


class PeftAdapters(NoAdapters):
    """The LoRA adapters of one model."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._known: dict[str, str] = {}
        """Those that are loaded, by the names that PEFT has of them."""
        self._later: dict[str, str] = {}
        """Folders of those that are loaded with their first use."""
        self._used = ""

    def check(self, name: str) -> None:
        if name and name not in {**self._known, **self._later}:
            known = (
                ", ".join({**self._known, **self._later})
                or "none: option.enable_lora is off or adapters/ empty"
            )
            raise RequestError("is unknown", field="adapter", value=name, accepted=known)

    def load(self, name: str, folder: str, *, is_now: bool = True) -> None:
        own = self._loaded(name, folder) if is_now else ""
        with self._lock:
            before = self._known.pop(name, None)
            self._later.pop(name, None)
            (self._known if own else self._later)[name] = own or folder
        if before is not None:
            self._model.delete_adapter(before)

    def _loaded(self, name: str, folder: str) -> str:
        # PEFT makes its name part of module names, which have no dots.
        own = f"adapter{next(self._numbers)}"
        try:
            self._model.load_adapter(folder, adapter_name=own)
            self._model.disable_adapters()
        except Exception as error:  # Each library below it has errors of its own.
            # A part of it may be in the model.
            with contextlib.suppress(Exception):
                self._model.delete_adapter(own)
            problem = f"cannot be loaded by PEFT: {without_folder(error, folder)}"
            raise RequestError(problem, field="adapter", value=name) from error
        return own

    def unload(self, name: str) -> None:
        self._later.pop(name, None)
        if (own := self._known.pop(name, None)) is not None:
            self._model.delete_adapter(own)

    def use(self, name: str) -> None:
        if name == self._used:
            return
        if name:
            self.check(name)
            if name in self._later:
                self.load(name, self._later[name])
            self._model.set_adapter(self._known[name])
            self._model.enable_adapters()
        else:
            self._model.disable_adapters()
        self._used = name
