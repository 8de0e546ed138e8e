"""The LoRA adapters of one engine, by name."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from lmi_backend.engines.vllm.inside import names, needs
from lmi_backend.errors import RequestError


class LoraAdapters:
    """Makes vLLM's LoRARequests, which it tells apart by a whole number from 1."""

    def __init__(self, folders: Mapping[str, str]) -> None:
        # Above those that vLLM's server may give by itself.
        self._ids = itertools.count(1 << 20)
        self.known: dict[str, Any] = {
            name: self._request(name, folder) for name, folder in folders.items()
        }
        """Name to vLLM's LoRARequest."""

    def _request(self, name: str, folder: str) -> Any:
        number = next(self._ids)
        return names.LoRARequest(lora_name=name, lora_int_id=number, lora_path=folder)

    def check(self) -> None:
        """Look whether this vLLM's requests for adapters are made as they are here.

        Raises:
            ConfigurationError: they are not.
        """
        try:
            names.LoRARequest(lora_name="a", lora_int_id=1, lora_path="a")
        except TypeError as error:
            raise needs.unservable(f"LoRARequest: {error}") from error

    def find(self, name: str) -> Any:
        """Return the LoRARequest of a name; None for the base model's, which is empty.

        Raises:
            RequestError: no adapter is called so.
        """
        if not name:
            return None
        try:
            return self.known[name]
        except KeyError:
            known = ", ".join(self.known) or "none: option.enable_lora is off or adapters/ empty"
            raise RequestError("is unknown", field="adapter", value=name, accepted=known) from None

    async def load(self, engine: Any, name: str, folder: str, *, preload: bool, pin: bool) -> None:
        """Make an adapter known; `preload` proves that vLLM can load it.

        Raises:
            RequestError: vLLM cannot.
        """
        before = self.known.get(name)
        # A number of its own, also for a name used before: the weights and the prefix cache of
        # the old adapter must not answer for the new one.
        request = self._request(name, folder)
        if before is not None and before.lora_path == folder:
            request = before
        try:
            if preload or pin:
                await needs.settled(engine.add_lora(request))
            if pin:
                await needs.settled(engine.pin_lora(request.lora_int_id))
        except Exception as error:
            problem = f"cannot be loaded by vLLM: {error}"
            raise RequestError(problem, field="adapter", value=name) from error
        self.known[name] = request

    async def unload(self, engine: Any, name: str) -> None:
        """Forget an adapter and free its slot."""
        request = self.find(name)
        if request is not None:
            del self.known[name]
            await needs.settled(engine.remove_lora(request.lora_int_id))
