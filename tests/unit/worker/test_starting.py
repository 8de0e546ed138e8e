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
from lmi_backend.worker.starting import network_variables, own_address, start_spare

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


@pytest.mark.parametrize(
    ("loads", "before", "after"),
    [(False, ["prepare"], ["prepare", "start"]), (True, ["start"], ["start"])],
)
async def test_what_a_spare_may_do_it_does_before_it_is_needed(
    loads: bool, before: list[str], after: list[str]
) -> None:
    engine, proceed = NotedEngine(), asyncio.get_running_loop().create_future()

    def on_prepared() -> None:
        assert engine.done == before
        proceed.set_result(None)

    capabilities = await start_spare(engine, loads=loads, on_prepared=on_prepared, proceed=proceed)
    assert (capabilities, engine.done) == (CAPABILITIES, after)


async def test_one_whose_engine_dies_while_it_waits_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spare_module, "LOOK_SECONDS", 0.0)
    engine = NotedEngine()

    def on_prepared() -> None:
        engine.problem = "its core was killed"

    with pytest.raises(EngineDeadError, match="its core was killed"):
        await start_spare(
            engine,
            loads=True,
            on_prepared=on_prepared,
            proceed=asyncio.get_running_loop().create_future(),
        )


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
