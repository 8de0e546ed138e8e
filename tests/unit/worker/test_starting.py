"""What a spare does before it is needed, and what then; what ranks are told of other machines."""

import asyncio
import ipaddress
import socket

import pytest

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.protocol import Engine
from lmi_backend.errors import EngineDeadError
from lmi_backend.ipc.engine import Capabilities
from lmi_backend.worker import starting as spare_module
from lmi_backend.worker.starting import Spare, network_variables, own_address

CAPABILITIES = Capabilities("noted", "1", 10)


class NotedEngine(Engine):
    """Notes what it is told to do."""

    def __init__(self) -> None:
        super().__init__(EngineConfig(model=""))
        self.done: list[str] = []
        self.problem = ""

    async def prepare(self) -> None:
        self.done.append("prepare")

    async def start(self) -> Capabilities:
        self.done.append("start")
        return CAPABILITIES

    async def check_health(self) -> None:
        if self.problem:
            raise EngineDeadError(self.problem)


@pytest.fixture(autouse=True)
def _collections_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the garbage collector of the tests alone."""
    monkeypatch.setattr(spare_module, "spare_collections", lambda: None)


def _proceed() -> "asyncio.Future[None]":
    proceed = asyncio.get_running_loop().create_future()
    proceed.set_result(None)
    return proceed


async def test_one_that_may_not_load_the_model_does_so_when_it_is_needed() -> None:
    engine = NotedEngine()
    spare = Spare(engine, loads=False)
    await spare.prepare()
    assert engine.done == ["prepare"]
    assert await spare.start(_proceed()) == CAPABILITIES
    assert engine.done == ["prepare", "start"]


async def test_one_that_has_loaded_the_model_is_ready_at_once() -> None:
    engine = NotedEngine()
    spare = Spare(engine, loads=True)
    await spare.prepare()
    assert engine.done == ["start"]
    assert await spare.start(_proceed()) == CAPABILITIES
    assert engine.done == ["start"]


async def test_one_whose_engine_dies_while_it_waits_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spare_module, "LOOK_SECONDS", 0.0)
    engine = NotedEngine()
    spare = Spare(engine, loads=True)
    await spare.prepare()
    waiting = asyncio.create_task(spare.start(asyncio.get_running_loop().create_future()))
    engine.problem = "its core was killed"
    with pytest.raises(EngineDeadError, match="its core was killed"):
        await waiting


def test_ranks_on_one_machine_need_nothing() -> None:
    assert network_variables({}) == {}
    assert network_variables({"MASTER_ADDR": "127.0.0.1"}) == {}
    assert network_variables({"MASTER_ADDR": "localhost"}) == {}


def test_the_way_to_another_machine_has_an_address_and_an_interface() -> None:
    # A documentation network (RFC 5737): no packet is sent.
    try:
        address = own_address("192.0.2.1")
    except OSError:
        # No route leads out of here, which is an answer too.
        return
    made = network_variables({"MASTER_ADDR": "192.0.2.1"})
    assert made["VLLM_HOST_IP"] == address
    assert not ipaddress.ip_address(address).is_loopback
    assert made["GLOO_SOCKET_IFNAME"] in [name for _, name in socket.if_nameindex()]
