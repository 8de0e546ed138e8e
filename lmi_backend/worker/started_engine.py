"""An engine that has started, which may outlive the conversation that it was started in."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import ConfigurationError
from lmi_backend.worker.adapters import change_adapters

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
    """LoRA adapters that it knows, name to folder; no folder where that is not certain."""

    async def set_adapter(self, engine: Engine, message: msg.SetAdapter) -> None:
        """Load an adapter, or forget it."""
        is_new = message.name not in self.adapters
        # What is broken off may have been done, or not. What is done may be of other files than at
        # the start, in the same folder.
        self.adapters[message.name] = _UNKNOWN
        if not message.folder:
            await engine.unload_adapter(message.name)
            del self.adapters[message.name]
            return
        try:
            await engine.load_adapter(
                message.name, message.folder, preload=message.preload, pin=message.pin
            )
        except Exception:
            if is_new:
                del self.adapters[message.name]
            raise

    async def start_again(self, start: msg.Start) -> Capabilities:
        """Serve the next stub as it says, with the engine as it is.

        Raises:
            ConfigurationError: it wants another engine.
            EngineDeadError: the engine is dead.
            RequestError: an adapter cannot be loaded or forgotten.
        """
        wanted = replace(start.config, adapters={})
        if start.engine != self.start.engine or wanted != replace(self.start.config, adapters={}):
            raise ConfigurationError("this worker has another engine, or another config of it")
        await self.rank.check_health()
        if self.engine is not None:
            await change_adapters(self.engine, self.adapters, start.config.adapters)
        self.adapters = dict(start.config.adapters)
        self.start, self.is_taken_over = start, True
        return self.capabilities
