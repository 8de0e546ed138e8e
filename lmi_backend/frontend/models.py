"""The models of this machine's server: found by their endpoints, as they come and go.

Until each model that the server loads as it starts is there, the server is not ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from lmi_backend.endpoint.address import endpoint_folder
from lmi_backend.endpoint.loading import Loading, read_loading
from lmi_backend.errors import (
    ConfigurationError,
    LmiError,
    LoadingError,
    RequestError,
    UnavailableError,
    UnknownModelError,
)
from lmi_backend.files import private_folder
from lmi_backend.frontend.answer import Unread
from lmi_backend.frontend.connection import ModelConnection
from lmi_backend.frontend.outages import Outages
from lmi_backend.pool.load_failure import LoadFailure
from lmi_backend.printable import listed, printable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from lmi_backend.engine_config import Context, ModelInfo
    from lmi_backend.frontend.answer import Answer
    from lmi_backend.frontend.http.exchange import Exchange
    from lmi_backend.frontend.model_control import RepositoryModel
    from lmi_backend.ipc import messages as msg


@dataclass(frozen=True, eq=False)
class Model:
    connection: ModelConnection
    welcome: msg.Welcome

    @property
    def info(self) -> ModelInfo:
        return self.welcome.model

    @property
    def name(self) -> str:
        return self.welcome.model.name

    @property
    def context(self) -> Context:
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
        return tuple(dict.fromkeys((self.name, *self.info.served_names, *self.context.adapters)))


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
    """
    end = time.monotonic() + _FIND_SECONDS
    while time.monotonic() < end:
        endpoints = list(endpoint_folder(base).glob("*.sock"))
        if len(models.all()) >= len(endpoints) and (models.starting.is_open or not endpoints):
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
        self.reloads = bool(names)
        """Whether a `serve` loads models again that failed."""
        self.is_open = index is None or not self.reloads
        """Whether Triton's own ports are open, as far as that is known."""
        self._has_lost = asyncio.Event()
        self.failed: dict[str, str] = {}
        """Models that could not be loaded, and why."""

    @property
    def loading(self) -> list[str]:
        return sorted(self._names)

    def note_ready(self, name: str) -> None:
        self._names.discard(name)
        self.failed.pop(name, None)

    def lost(self, name: str) -> None:
        """Note that a model has died: the next start of its server loads it again."""
        if self.reloads:
            self._names.add(name)
            self.is_open = self._index is None
            self._has_lost.set()

    @property
    def _looks(self) -> bool:
        """Whether Triton has something to tell."""
        is_settled = self.reloads and self.is_open and not (self._names or self.failed)
        return self._index is not None and not is_settled

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except Exception:  # noqa: BLE001  without this loop a model that failed is awaited for ever
                _log.exception("looking at the models that are loaded failed")
            await asyncio.sleep(_LOOK_SECONDS if self.reloads else _OTHERS_SECONDS)
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
            if not self.reloads:
                self._index = None
            return
        if self.reloads:
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


_REFUSED_SECONDS: Final = 5.0
"""Pause before the next try with a model that refuses this process: another may be in its place."""


class Models:
    """All models whose endpoints are in a folder.

    Args:
        base: folder for temporary files, or the supervisor's run folder; the endpoints are in a
            private folder in it.
        configured: the names of the models that the server is to have, as far as that is known.
    """

    def __init__(
        self,
        base: Path,
        starting: Starting | None = None,
        configured: Mapping[str, Collection[str]] = MappingProxyType({}),
    ) -> None:
        self._base, self._folder = base, endpoint_folder(base)
        self.starting = starting or Starting()
        self._connections: dict[Path, tuple[int, ModelConnection]] = {}
        self.by_path: dict[Path, Model] = {}
        self._by_name: dict[str, Model] = {}
        self._configured = configured
        self._claims: dict[str, Collection[str]] = {}
        """Names of the models that were found, without those that were unloaded."""
        self.outages = Outages()
        self._unread = Unread()
        self._refusals: set[str] = set()
        self._seen = 0
        self._has_looked = self._knows_all = False

    async def run(self) -> None:
        try:
            while True:
                try:
                    await self.look_again()
                    self._has_looked = True
                except Exception:  # noqa: BLE001  without this loop no model is found again
                    _log.exception("looking for models failed")
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            # None of them goes: this process does.
            self.by_path.clear()
            for _, connection in self._connections.values():
                connection.close()
            self.outages.close()

    @property
    def are_complete(self) -> bool:
        """Whether no model is there that is not known: none is loading, and none refuses."""
        are_ready = all(path in self.by_path for path in self._connections)
        return (
            self._has_looked and are_ready and not self.starting.loading and self.starting.is_open
        )

    def all(self) -> list[Model]:
        return sorted(self.by_path.values(), key=lambda model: model.name)

    def find(self, name: str) -> Model | None:
        """Return the model of a name, or of a LoRA adapter's; of no name, the only one there is."""
        if name:
            return self._by_name.get(name)
        others = self.outages.awaited or self.starting.loading or self.starting.failed
        is_only = len(self.by_path) == 1 and not others
        return next(iter(self.by_path.values())) if is_only else None

    def progress(self) -> dict[str, Loading]:
        return {
            name: each
            for name, each in read_loading(self._base).items()
            if name in self.starting.loading
        }

    def outage_counts(self) -> dict[str, dict[str, int]]:
        """Return of each model what became of requests that waited for it, and how many `wait`."""
        names = {*self.outages.awaited, *(model.name for model in self.by_path.values())}
        return {name: self.outages.counts(name) for name in sorted(names)}

    async def reach(self, exchange: Exchange, name: str) -> Model | None:
        """Return what `find` does; of a model that is expected back, wait for it.

        Raises:
            UnavailableError: too many wait for it, or it was not back in time.
            ClientGoneError: the client left meanwhile.
        """
        while self._waits_for(name):
            await exchange.unless_gone(self.outages.wait(name))
        if self.find(name) is None:
            await self.catch_up()
        reached = self.find(name)
        exchange.model = reached.name if reached else ""
        return reached

    def _waits_for(self, name: str) -> bool:
        is_there = name in self._by_name if name else bool(self.by_path)
        return not is_there and self.outages.is_awaited(name)

    async def of_body(self, exchange: Exchange, name: str) -> Model:
        """Return the model that a body names; wait for one that is expected back.

        Raises:
            UnknownModelError: there is none of that name.
            RequestError: it names none, and there are several.
            UnavailableError: no model is loaded yet, or not all are; or as for `reach`.
            ClientGoneError: the client left meanwhile.
        """
        if (model := await self.reach(exchange, name)) is not None:
            return model
        if not self.by_path and not self.starting.loading and name not in self.starting.failed:
            raise UnavailableError(self.why_none())
        if name or self.starting.loading:
            raise self.unknown(name)
        raise RequestError("is missing", field="model", accepted=listed(self._by_name))

    def unknown(self, name: str) -> LmiError:
        """Return the error of a name that no model has, or none has yet."""
        if name in self.starting.failed:
            return UnavailableError(f"{name} does not start: {self.starting.failed[name]}")
        if self.starting.loading:
            return self._not_yet(name)
        return UnknownModelError(name, self._by_name)

    def _not_yet(self, name: str) -> LmiError:
        loads = self.progress()
        named = [loads[each] for each in ([name] if name in loads else loads) if loads[each].brief]
        if not named:
            return UnavailableError(f"models are being loaded: {listed(self.starting.loading)}")
        text = "; ".join(f"{printable(each.model)} is loading: {each.brief}" for each in named)
        return LoadingError(text, min(each.retry_seconds for each in named))

    def why_none(self) -> str:
        if self.starting.loading:
            return str(self.unknown(""))
        reasons = (connection.refusal for _, connection in self._connections.values())
        return next(filter(None, reasons), "no model is loaded")

    async def catch_up(self) -> None:
        """Meet the models that other processes of this front end may serve already."""
        await self.look_again()
        answers = [each.has_answered.wait() for _, each in self._connections.values()]
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.gather(*answers), _FIND_SECONDS)

    async def look_again(self) -> None:
        try:
            changed = self._folder.stat().st_mtime_ns
        except FileNotFoundError:
            return
        # A model that is being started has made its socket and does not listen yet.
        if changed == self._seen and self._knows_all:
            return
        self._seen, self._knows_all = changed, False
        try:
            private_folder(self._folder)
        except ConfigurationError as error:
            _log.error("%s", error)
            return
        for path in self._sockets():
            await self._connect(path)
        self._knows_all = all(path in self._connections for path in self._sockets())

    def _sockets(self) -> Iterator[Path]:
        return self._folder.glob("*.sock")

    async def _connect(self, path: Path) -> None:
        try:
            inode = path.stat().st_ino  # noqa: ASYNC240  microseconds
        except FileNotFoundError:
            return
        if path in self._connections and self._connections[path][0] == inode:
            return
        loop = asyncio.get_running_loop()
        connection = ModelConnection(
            lambda welcome: self.enter(path, connection, welcome),
            lambda answers: self._leave(path, connection, answers),
            self._unread,
            loop.call_soon,
        )
        self._connections[path] = inode, connection
        try:
            await loop.create_unix_connection(lambda: connection, str(path))
        except OSError as error:
            _log.debug("%s: %s", path, error)
            connection.has_answered.set()
            self._forget(path, connection)

    def enter(self, path: Path, connection: ModelConnection, welcome: msg.Welcome) -> None:
        if path not in self.by_path:
            _log.info("model %s is ready", welcome.model.name)
        self.by_path[path] = Model(connection, welcome)
        self.starting.note_ready(welcome.model.name)
        self._index()
        self.outages.resume(connection)

    def _leave(self, path: Path, connection: ModelConnection, answers: list[Answer]) -> None:
        if connection.refusal:
            if connection.refusal not in self._refusals:
                self._refusals.add(connection.refusal)
                _log.error("a model refuses this front end: %s", connection.refusal)
            asyncio.get_running_loop().call_later(_REFUSED_SECONDS, self._forget, path, connection)
            return
        self._forget(path, connection)
        model = self.by_path.get(path)
        if model is not None and model.connection is connection:
            del self.by_path[path]
            _log.info("model %s %s", model.name, "has died" if path.exists() else "was unloaded")
            self._index()
        # One that was unloaded has taken its socket away; of one that died it is left.
        names = model.names if model is not None and path.exists() else ()
        if not names:
            self._claims.pop(connection.model.name, None)
            self._index()
        if names:
            self.starting.lost(connection.model.name)
        self.outages.begin(answers, connection.model, names)
        # Where it was loaded anew, the next one may be there before the last one leaves.
        for model in self.by_path.values():
            if model.name == connection.model.name:
                self.starting.note_ready(model.name)
                self.outages.resume(model.connection)

    def _forget(self, path: Path, connection: ModelConnection) -> None:
        if (entry := self._connections.get(path)) and entry[1] is connection:
            del self._connections[path]
            self._knows_all = False

    def _index(self) -> None:
        models = self.all()
        self._claims |= {model.name: model.names for model in models}
        claims = {**self._configured, **self._claims}
        # A name of two models is neither's, whether the other is loaded or not.
        claimed = Counter(name for names in claims.values() for name in {*names})
        own = {model.name: model for model in models}
        others = {name: model for model in models for name in model.names if claimed[name] == 1}
        self._by_name = others | own
