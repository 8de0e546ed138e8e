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
    from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from lmi_backend.frontend.model_control import RepositoryModel
    from lmi_backend.frontend.models import Models

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.2
_OTHERS_SECONDS: Final = 2.0
"""The same next to a tritonserver that others start."""
_FIND_SECONDS: Final = 1.0
_FIND_LOOK_SECONDS: Final = 0.01
_FAILED: Final = "FAILED"
_READY: Final = "READY"
_ON_THE_WAY: Final = ("LOADING", "READY", "UNLOADING")
"""States after which a model's endpoint is found, or found again."""


async def find_models(models: Models, base: Path) -> None:
    """Wait for the models that were there before this front end, for a moment at most.

    Clients that waited for it come at once, and would be told that no model is there yet.

    Args:
        models: which are found.
        base: folder in which their endpoints are.
    """
    end = time.monotonic() + _FIND_SECONDS
    while time.monotonic() < end:
        endpoints = list(endpoint_folder(base).glob("*.sock"))
        if len(models.all()) >= len(endpoints) and (models.is_open or not endpoints):
            return
        await asyncio.sleep(_FIND_LOOK_SECONDS)


class Starting:
    """The models that are awaited, and what became of the others.

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
        self.is_known = bool(names)
        """Whether a `serve` loads models again that failed."""
        self.is_open = index is None or not self.is_known
        """Whether Triton's own ports are open, as far as that is known."""
        self._has_lost = asyncio.Event()
        self.failed: dict[str, str] = {}
        """Models that could not be loaded, and why."""

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
        if self.is_known:
            self._names.add(name)
            self.is_open = self._index is None
            self._has_lost.set()

    @property
    def _looks(self) -> bool:
        """Whether Triton has something to tell."""
        is_settled = self.is_known and self.is_open and not (self._names or self.failed)
        return self._index is not None and not is_settled

    async def run(self) -> None:
        """Follow the models that are awaited, until cancelled."""
        while True:
            try:
                await self.look()
            except Exception:  # noqa: BLE001  without this loop a model that failed is awaited for ever
                _log.exception("looking at the models that are loaded failed")
            await asyncio.sleep(_LOOK_SECONDS if self.is_known else _OTHERS_SECONDS)
            if not self._looks:
                self._has_lost.clear()
                await self._has_lost.wait()

    async def look(self) -> None:
        """Await no more what was unloaded, or has failed; that is awaited again when it loads."""
        if self._index is None or not self._looks:
            return
        try:
            index = await self._index()
        except UnavailableError:
            # Its port opens when it has loaded what it can.
            return
        except LmiError as error:
            _log.warning("which models are still loaded is not known: %s", error)
            self._names.clear()
            self.is_open = True
            if not self.is_known:
                self._index = None
            return
        if self.is_known:
            self._follow(index)
        else:
            self.failed = {name: _reason(name, each) for name, each in _failed(index)}

    def _follow(self, index: Mapping[str, RepositoryModel]) -> None:
        self.failed |= {
            name: _reason(name, each) for name, each in _failed(index) if name in self._names
        }
        for name in [each for each in self.failed if each in index]:
            if index[name].state == _READY:
                del self.failed[name]
                self._names.add(name)
        self._names &= {name for name, model in index.items() if model.state in _ON_THE_WAY}
        # The one that answers may be about to go, as long as a model is awaited.
        self.is_open = not self._names


def _failed(index: Mapping[str, RepositoryModel]) -> Iterator[tuple[str, RepositoryModel]]:
    return ((name, each) for name, each in index.items() if each.status == _FAILED)


def _reason(name: str, model: RepositoryModel) -> str:
    return LoadFailure.of(name, model.reason).brief
