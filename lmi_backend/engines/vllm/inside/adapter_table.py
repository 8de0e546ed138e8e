"""The LoRA adapters that vLLM's server knows: those of the engine, in one table or told to it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lmi_backend.engines.vllm.inside import fast_paths, names
from lmi_backend.errors import EngineError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from lmi_backend.engines.vllm.lora import LoraAdapters


class AdapterTable:
    """The adapters of one server.

    Args:
        models: vLLM's OpenAIServingModels.
        engine: vLLM's AsyncLLM.
        adapters: the engine's.
    """

    def __init__(self, models: Any, engine: Any, adapters: LoraAdapters) -> None:
        self._models, self._engine, self._adapters = models, engine, adapters
        self._known = adapters.known
        self._loaded: dict[str, Any] = {}
        self._lock = asyncio.Lock()
        fast_paths.probe("adapter_table", "a table of adapters by name", self._share)

    def _share(self) -> None:
        if not isinstance(self._models.lora_requests, dict):
            raise TypeError(f"lora_requests is of type {type(self._models.lora_requests).__name__}")
        # What we load or forget is known there at once.
        self._models.lora_requests = self._known
        if self._models.lora_requests is not self._known:
            raise TypeError("lora_requests cannot be replaced")

    def has(self, name: object) -> bool:
        """Tell whether an adapter is called so."""
        return isinstance(name, str) and name in self._known

    async def hold(self, model: object) -> AbstractContextManager[Any]:
        """Have the engine and its server know the adapter that a request names, while it runs.

        Raises as `LoraAdapters.hold` does.
        """
        name = model if isinstance(model, str) and self.has(model) else ""
        held = await self._adapters.hold(self._engine, name)
        if not fast_paths.is_on("adapter_table"):
            await self._tell(name)
        return held

    async def _tell(self, asked: str) -> None:
        """Report to the server what has changed, and the adapter that a request needs."""
        async with self._lock:
            for name in [
                name for name, each in self._loaded.items() if self._known.get(name) != each
            ]:
                request = names.UnloadLoRAAdapterRequest(lora_name=name)
                await self._models.unload_lora_adapter(request)
                del self._loaded[name]
            if asked in self._known and asked not in self._loaded:
                await self._load(asked, self._known[asked])

    async def _load(self, name: str, adapter: Any) -> None:
        request = names.LoadLoRAAdapterRequest(lora_name=name, lora_path=adapter.lora_path)
        answer = await self._models.load_lora_adapter(request)
        if not isinstance(answer, str):
            raise EngineError(f"vLLM's server does not take the adapter {name}: {answer}")
        self._loaded[name] = adapter
