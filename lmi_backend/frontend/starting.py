"""The models that a server loads as it starts: until each is there, the server is not ready."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from lmi_backend.endpoint.address import endpoint_folder
from lmi_backend.errors import LmiError, UnavailableError
from lmi_backend.pool.load_failure import LoadFailure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping
    from pathlib import Path

    from lmi_backend.frontend.model_control import RepositoryModel
    from lmi_backend.frontend.models import Models

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.5
_FIND_SECONDS: Final = 1.0
_FIND_LOOK_SECONDS: Final = 0.01
_FAILED: Final = "FAILED"
_READY: Final = "READY"
_ON_THE_WAY: Final = ("LOADING", "READY", "UNLOADING")
"""States after which a model's endpoint is found, or found again."""


async def find_models(models: Models, base: Path, *, takes_over: bool) -> None:
    """Wait for the models that were there before this front end, for a moment at most.

    Clients that waited for it come at once, and would be told that no model is there yet.

    Args:
        models: which are found.
        base: folder in which their endpoints are.
        takes_over: whether another front end serves meanwhile: then all of them are waited for.
    """
    end = time.monotonic() + _FIND_SECONDS
    while takes_over or time.monotonic() < end:
        endpoints = list(endpoint_folder(base).glob("*.sock"))
        if models.are_complete if takes_over else len(models.all()) >= len(endpoints):
            return
        await asyncio.sleep(_FIND_LOOK_SECONDS)


class Starting:
    """The models that are awaited.

    Args:
        names: what `serve` loads at each start; empty if that is not known.
        index: requests from Triton what became of them; Triton answers when it has tried to load
            them all.
    """

    def __init__(
        self,
        names: Collection[str] = (),
        index: Callable[[], Awaitable[Mapping[str, RepositoryModel]]] | None = None,
    ) -> None:
        self._names, self._index = set(names), index
        self._is_known = bool(names)
        self._has_lost = asyncio.Event()
        self.failed: dict[str, str] = {}
        """Models that could not be loaded, and why; they are tried again."""

    @property
    def names(self) -> list[str]:
        """Names of the models that are not there yet."""
        return sorted(self._names)

    def found(self, name: str) -> None:
        """Note that a model is there."""
        self._names.discard(name)
        self.failed.pop(name, None)

    def lost(self, name: str) -> None:
        """Note that a model has died: the next start of its server loads it again."""
        if self._is_known:
            self._names.add(name)
            self._has_lost.set()

    async def run(self) -> None:
        """Follow the models that are awaited, until cancelled."""
        while True:
            try:
                await self.look()
            except Exception:  # noqa: BLE001  without this loop a model that failed is awaited for ever
                _log.exception("looking at the models that are loaded failed")
            await asyncio.sleep(_LOOK_SECONDS)
            if not (self._names or self.failed):
                self._has_lost.clear()
                await self._has_lost.wait()

    async def look(self) -> None:
        """Await no more what was unloaded, or has failed; that is awaited again when it loads."""
        if self._index is None or not (self._names or self.failed):
            return
        try:
            index = await self._index()
        except UnavailableError:
            # Its port opens when it has loaded what it can.
            return
        except LmiError as error:
            _log.warning("which models are still loaded is not known: %s", error)
            self._names.clear()
            return
        for name, model in index.items():
            if name in self._names and model.status == _FAILED:
                self.failed[name] = LoadFailure.of(name, model.reason).brief
            elif name in self.failed and model.state == _READY:
                del self.failed[name]
                self._names.add(name)
        self._names &= {name for name, model in index.items() if model.state in _ON_THE_WAY}
