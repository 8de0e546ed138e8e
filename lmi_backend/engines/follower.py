"""A rank that works for rank 0."""

from __future__ import annotations

from lmi_backend import __version__
from lmi_backend.engine_config import EngineConfig
from lmi_backend.ipc.engine import Capabilities, EngineStats


class Follower:
    """Has nothing to do and is always well; engines whose ranks share the work derive theirs."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config

    async def start(self) -> Capabilities:
        """See `Rank`."""
        return Capabilities("follower", __version__, 0)

    def stats(self) -> EngineStats:
        """See `Rank`; rank 0 speaks for all."""
        return EngineStats()

    async def check_health(self) -> None:
        """See `Rank`."""

    async def close(self) -> None:
        """See `Rank`."""
