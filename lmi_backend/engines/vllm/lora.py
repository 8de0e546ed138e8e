"""The LoRA adapters of one engine, by name.

vLLM reads an adapter that it does not have in the middle of a step, and a step that fails kills the
engine core. So a request for an adapter reaches the core only once the core has loaded these very
files, or still has what it loaded.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from lmi_backend.engines.vllm import compat, names
from lmi_backend.engines.vllm.requests import translated
from lmi_backend.errors import RequestError
from lmi_backend.files import Seen, seen, without_folder


class LoraAdapters:
    """Makes vLLM's LoRARequests, which it tells apart by a whole number from 1.

    Args:
        slots: how many adapters a step of the core may have (`max_loras`).
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        # Above those that vLLM's server may give by itself.
        self._ids = itertools.count(1 << 20)
        self.by_name: dict[str, Any] = {}
        """Name to vLLM's LoRARequest."""
        self._loaded: dict[int, Seen] = {}
        """Files of each adapter that the core has loaded, when it did, by number."""
        self._pinned: set[int] = set()
        self._users: Counter[int] = Counter()
        """Requests of each adapter that run, by number."""
        self._turn = asyncio.Lock()
        self._removals: set[asyncio.Task[None]] = set()

    def _request(self, name: str, folder: str) -> Any:
        number = next(self._ids)
        return names.LoRARequest(lora_name=name, lora_int_id=number, lora_path=folder)

    def share(self, models: Any) -> None:
        """Keep the adapters in the table of vLLM's server, which so knows each at once."""
        table = compat.checked(models, "OpenAIServingModels", "lora_requests").lora_requests
        table.update(self.by_name)
        self.by_name = table

    async def hold(self, engine: Any, name: str) -> AbstractContextManager[Any]:
        """Return what holds the LoRARequest of a name while a request runs; enter it at once.

        It gives None for the base model, whose name is empty.

        Raises:
            RequestError: no adapter is called so, or vLLM cannot load it.
        """
        if not name:
            return nullcontext()
        return self._held(engine, await self._loadable(engine, name))

    @contextmanager
    def _held(self, engine: Any, request: Any) -> Iterator[Any]:
        number = request.lora_int_id
        self._users[number] += 1
        try:
            yield request
        finally:
            self._users[number] -= 1
            if not self._users[number] and self._is_old(request):
                removal = asyncio.ensure_future(self._remove(engine, request))
                self._removals.add(removal)
                removal.add_done_callback(self._note_removal)

    def _find(self, name: str) -> Any:
        try:
            return self.by_name[name]
        except KeyError:
            listed = ", ".join(self.by_name) or "none: option.enable_lora is off or adapters/ empty"
            raise RequestError("is unknown", field="adapter", value=name, accepted=listed) from None

    async def _loadable(self, engine: Any, name: str) -> Any:
        """Return what the core can take into a step, and have it load that first if need be."""
        request = self._find(name)
        files = await asyncio.to_thread(seen, request.lora_path)
        if self._loaded.get(request.lora_int_id) == files and not self._is_old(request):
            return request
        async with self._turn:
            request = self._find(name)
            # Files that are gone, or half written, do not harm what the core still has.
            if request.lora_int_id not in self._loaded or not await self._has(engine, request):
                request = await self._loaded_anew(engine, name, request.lora_path)
                await self._replace(engine, request)
        return request

    def is_loaded(self, name: str) -> bool:
        """Tell whether the core has loaded an adapter, and perhaps dropped it since."""
        request = self.by_name.get(name)
        return request is not None and request.lora_int_id in self._loaded

    async def load(self, engine: Any, name: str, folder: str, *, preload: bool, pin: bool) -> None:
        """Make an adapter known; `preload` proves that vLLM can load it."""
        async with self._turn:
            request = self.by_name.get(name)
            if request is None or not await self._is_current(request, folder):
                # A number of its own, also for a name used before: the weights and the prefix cache
                # of the old adapter must not answer for the new one.
                request = self._request(name, folder)
            is_pinned = request.lora_int_id in self._pinned
            if pin and not is_pinned:
                self._check_pin(name)
            if (preload or pin) and request.lora_int_id not in self._loaded:
                request = await self._loaded_anew(engine, name, folder)
            await self._replace(engine, request)
            if pin and not is_pinned:
                await compat.settled(engine.pin_lora(request.lora_int_id))
                self._pinned.add(request.lora_int_id)

    def _check_pin(self, name: str) -> None:
        """Refuse to pin what leaves no slot for the others: a step that finds none fails."""
        own = getattr(self.by_name.get(name), "lora_int_id", 0)
        others = self._pinned - ({own} if not self._users[own] else set())
        if len(others) + 1 >= self._slots:
            problem = f"cannot be pinned: {len(others)} of option.max_loras={self._slots} are"
            accepted = "one fewer than option.max_loras"
            raise RequestError(problem, field="adapter", value=name, accepted=accepted)

    async def _is_current(self, request: Any, folder: str) -> bool:
        files = self._loaded.get(request.lora_int_id)
        return request.lora_path == folder and files == await asyncio.to_thread(seen, folder)

    async def unload(self, engine: Any, name: str) -> None:
        """Forget an adapter, and free its slot once no request uses it."""
        async with self._turn:
            request = self._find(name)
            del self.by_name[name]
            await self._drop(engine, request)

    async def _replace(self, engine: Any, request: Any) -> None:
        earlier = self.by_name.get(request.lora_name)
        self.by_name[request.lora_name] = request
        if earlier is not None and earlier is not request:
            await self._drop(engine, earlier)

    async def _drop(self, engine: Any, request: Any) -> None:
        # In the middle of an answer the core would read it again, from a folder that may be gone.
        if not self._users[request.lora_int_id]:
            await self._remove(engine, request)

    def _is_old(self, request: Any) -> bool:
        return self.by_name.get(request.lora_name) is not request

    async def _loaded_anew(self, engine: Any, name: str, folder: str) -> Any:
        """Have the core load what a folder holds now; outside of a step it may fail."""
        request, files = self._request(name, folder), await asyncio.to_thread(seen, folder)
        try:
            await compat.settled(engine.add_lora(request))
        except names.EngineDeadError as error:
            raise translated(error) from error
        except Exception as error:
            # It may have been put in the core's list before it was found to be wrong.
            await self._remove(engine, request)
            problem = f"cannot be loaded by vLLM: {without_folder(error, folder)}"
            raise RequestError(problem, field="adapter", value=name) from error
        self._loaded[request.lora_int_id] = files
        return request

    async def _remove(self, engine: Any, request: Any) -> None:
        self._loaded.pop(request.lora_int_id, None)
        self._pinned.discard(request.lora_int_id)
        del self._users[request.lora_int_id]
        await compat.settled(engine.remove_lora(request.lora_int_id))

    def _note_removal(self, removal: asyncio.Task[None]) -> None:
        self._removals.discard(removal)
        if not removal.cancelled():
            # An engine that has died says so to its requests.
            removal.exception()

    async def _has(self, engine: Any, request: Any) -> bool:
        return request.lora_int_id in await compat.settled(engine.list_loras())
