"""An engine that has started, which may outlive the conversation that it was started in."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import ConfigurationError

if TYPE_CHECKING:
    from lmi_backend.engines.protocol import Engine, Rank
    from lmi_backend.ipc import messages as msg
    from lmi_backend.ipc.engine import Capabilities

_UNKNOWN: Final = ""


@dataclass
class StartedEngine:
    """An engine, or a rank of it, as it was started."""

    start: msg.Start
    rank: Rank
    engine: Engine | None
    """The same, where it takes requests."""
    capabilities: Capabilities
    is_taken_over: bool = False
    """Whether the stub that it serves now is not the one that had it started."""
    adapters: dict[str, str] = field(default_factory=dict)
    """LoRA adapters that it knows, name to digest; no digest where that is not certain."""

    async def set_adapter(self, engine: Engine, order: msg.SetAdapter) -> None:
        """Load an adapter, or forget it. After an error all is as before."""
        before = self.adapters.get(order.name)
        # What is broken off may have been done, or not.
        self.adapters[order.name] = _UNKNOWN
        try:
            if order.folder:
                await engine.load_adapter(
                    order.name, order.folder, preload=order.preload, pin=order.pin
                )
            elif before is not None:
                await engine.unload_adapter(order.name)
        except Exception:
            self._note(order.name, before)
            raise
        self._note(order.name, order.digest if order.folder else None)

    def _note(self, name: str, digest: str | None) -> None:
        """Note what the engine knows of an adapter; None: nothing."""
        self.adapters.pop(name, None)
        if digest is not None:
            self.adapters[name] = digest

    async def start_again(self, start: msg.Start) -> Capabilities:
        """Serve the next stub as it says, with the engine as it is.

        Raises:
            ConfigurationError: it wants another engine.
            EngineDeadError: the engine is dead.
        """
        wanted = replace(start.config, adapters={})
        if start.engine != self.start.engine or wanted != replace(self.start.config, adapters={}):
            raise ConfigurationError("this worker has another engine, or another config of it")
        await self.rank.check_health()
        self.start, self.is_taken_over = start, True
        return self.capabilities
