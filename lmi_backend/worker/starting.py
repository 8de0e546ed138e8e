"""What a worker's engine is started with, and what it is once it has started.

A rank's libraries read its rank, address and interface from the environment. A spare waits before
it loads weights. An engine that has started may outlive the conversation that it was started in.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from lmi_backend.engines.registry import create_engine
from lmi_backend.engines.tokens import TemplateEngine
from lmi_backend.errors import ConfigurationError
from lmi_backend.ipc import messages as msg
from lmi_backend.options.spec import CUSTOM
from lmi_backend.threads import spare_collections

if TYPE_CHECKING:
    from lmi_backend.engines.protocol import Engine, Rank
    from lmi_backend.ipc.engine import Capabilities


# What torch calls them, and each engine that builds on it.
_NAMES: Final = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
}


def torch_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which torch knows a rank; none outside a group."""
    return {name: environment[own] for name, own in _NAMES.items() if own in environment}


def network_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what libraries of a rank would otherwise guess from the host's name, often wrongly.

    Nothing where all ranks are on this machine.
    """
    if "MASTER_ADDR" not in environment:
        return {}
    own = own_address(environment["MASTER_ADDR"])
    if ipaddress.ip_address(own).is_loopback:
        return {}
    return {"VLLM_HOST_IP": own, "GLOO_SOCKET_IFNAME": _interface_of(own)}


def own_address(peer: str) -> str:
    """Return this machine's IPv4 address on the way to another; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, 9))
        address: str = probe.getsockname()[0]
    return address


def _interface_of(address: str) -> str:
    """Return the name of the interface that has an address; empty if none has."""
    import psutil  # noqa: PLC0415  engines of several ranks bring it

    interfaces = psutil.net_if_addrs().items()
    return next(
        (name for name, own in interfaces if any(each.address == address for each in own)), ""
    )


def build_engine(start: msg.Start) -> Engine:
    inner = create_engine(start.engine, start.config) if start.engine != CUSTOM else None
    if isinstance(inner, TemplateEngine):
        from lmi_backend.worker.openai_engine import OpenAiEngine  # noqa: PLC0415

        inner = OpenAiEngine(start.config, inner)
    if inner is not None and not start.config.runs_code:
        return inner
    # Few models have code of their own.
    from lmi_backend.worker.handlers.engine import CustomEngine  # noqa: PLC0415

    return CustomEngine(start.config, inner)


_UNKNOWN: Final = ""


@dataclass
class StartedEngine:
    start: msg.Start
    rank: Rank
    capabilities: Capabilities
    is_taken_over: bool = False
    """Whether the stub that it serves now is not the one that had it started."""
    adapters: dict[str, str] = field(default_factory=dict)
    """LoRA adapters that it knows, name to digest; no digest where that is not certain."""

    async def set_adapter(self, engine: Engine, order: msg.SetAdapter) -> None:
        """Load an adapter, or forget it. After an error all is as before."""
        earlier = self.adapters.get(order.name)
        # What is broken off may have been done, or not.
        self.adapters[order.name] = _UNKNOWN
        try:
            if order.folder:
                await engine.load_adapter(
                    order.name, order.folder, preload=order.preload, pin=order.pin
                )
            elif earlier is not None:
                await engine.unload_adapter(order.name)
        except Exception:
            self._note(order.name, earlier)
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
        """
        wanted = replace(start.config, adapters={})
        if start.engine != self.start.engine or wanted != replace(self.start.config, adapters={}):
            raise ConfigurationError("this worker has another engine, or another config of it")
        await self.rank.check_health()
        self.start, self.is_taken_over = start, True
        return self.capabilities


LOOK_SECONDS: Final = 5.0
"""Between two looks at an engine that waits."""


async def start_spare(
    rank: Rank, *, loads: bool, on_prepared: Callable[[], None], proceed: asyncio.Future[None]
) -> Capabilities:
    """Start the engine of a spare, or a rank of it: a part now, and the rest when it is needed.

    Args:
        loads: whether it loads the model before it is needed.
        on_prepared: called when nothing is left that can be done before.
        proceed: done when it is needed.

    Raises:
        ConfigurationError: an argument is refused.
        EngineDeadError: the engine died while it waited.
    """
    if not loads:
        await rank.prepare()
        on_prepared()
        await proceed
        return await rank.start()
    capabilities = await rank.start()
    spare_collections()
    on_prepared()
    while not proceed.done():
        await asyncio.wait({proceed}, timeout=LOOK_SECONDS)
        await rank.check_health()
    return capabilities
