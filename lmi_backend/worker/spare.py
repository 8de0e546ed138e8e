"""What a worker does that waits to replace another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from lmi_backend.garbage import spare_collections

if TYPE_CHECKING:
    from lmi_backend.engines.protocol import Engine, Rank
    from lmi_backend.ipc.engine import Capabilities

LOOK_SECONDS: Final = 1.0
"""Between two looks at an engine that waits."""


class Spare:
    """The engine of a spare, or a rank of it.

    Args:
        rank: which prepares itself, and loads its part of the model when it is needed.
        engine: the same, where it takes requests.
        loads: whether it loads the model before it is needed.
    """

    def __init__(self, rank: Rank, engine: Engine | None, *, loads: bool) -> None:
        self._rank, self._engine, self._loads = rank, engine, loads
        self._capabilities: Capabilities | None = None

    async def prepare(self) -> None:
        """Do all that can be done before it is needed.

        Raises:
            ConfigurationError: an argument is refused.
        """
        if self._loads:
            self._capabilities = await self._rank.start()
            spare_collections()
        else:
            await self._rank.prepare()

    async def start(self, proceed: asyncio.Future[dict[str, str]]) -> Capabilities:
        """Wait until it is needed, and do the rest.

        Args:
            proceed: has the adapters that are known by then, name to folder.

        Raises:
            ConfigurationError: an argument is refused.
            EngineDeadError: the engine died while it waited.
            RequestError: an adapter cannot be loaded.
        """
        if self._capabilities is None:
            self._rank.set_adapters(await proceed)
            return await self._rank.start()
        while not proceed.done():
            await asyncio.wait({proceed}, timeout=LOOK_SECONDS)
            await self._rank.check_health()
        if self._engine is not None:
            await _change_adapters(self._engine, proceed.result())
        return self._capabilities


async def _change_adapters(engine: Engine, adapters: dict[str, str]) -> None:
    """Let an engine that has started know these adapters, name to folder, and no others."""
    before = engine.adapters
    for name in before.keys() - adapters.keys():
        await engine.unload_adapter(name)
    for name, folder in adapters.items():
        if before.get(name) != folder:
            await engine.load_adapter(name, folder, preload=False, pin=False)
