"""What a worker does that waits to replace another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from lmi_backend.garbage import spare_collections

if TYPE_CHECKING:
    from lmi_backend.engines.protocol import Rank
    from lmi_backend.ipc.engine import Capabilities

LOOK_SECONDS: Final = 5.0
"""Between two looks at an engine that waits."""


class Spare:
    """The engine of a spare, or a rank of it.

    Args:
        rank: which prepares itself, and loads its part of the model when it is needed.
        loads: whether it loads the model before it is needed.
    """

    def __init__(self, rank: Rank, *, loads: bool) -> None:
        self._rank, self._loads = rank, loads
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

    async def start(self, proceed: asyncio.Future[None]) -> Capabilities:
        """Wait until it is needed, and do the rest.

        Args:
            proceed: done when it is needed.

        Raises:
            ConfigurationError: an argument is refused.
            EngineDeadError: the engine died while it waited.
        """
        if self._capabilities is None:
            await proceed
            return await self._rank.start()
        while not proceed.done():
            await asyncio.wait({proceed}, timeout=LOOK_SECONDS)
            await self._rank.check_health()
        return self._capabilities
