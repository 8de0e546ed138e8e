"""What several workers of a machine cannot share: each has its own, or there is one worker."""

import json

import pytest

from lmi_backend.engine_config import EngineConfig
from lmi_backend.errors import PlanError
from lmi_backend.plan.engine_plan import Explanation
from lmi_backend.plan.ports import explain_ports, own_ports

EVENTS = {"enable_kv_cache_events": True, "publisher": "zmq"}
NIXL = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}


def _config(events: dict[str, object], copies: int = 1) -> EngineConfig:
    passthrough = {"kv_events_config": json.dumps(events), "max_lora_rank": "8"}
    return EngineConfig(
        model="m", passthrough=passthrough, arguments={"data_parallel_size": copies}
    )


@pytest.mark.parametrize(
    ("events", "index", "copies", "expected"),
    [
        ({"endpoint": "tcp://*:5557"}, 0, 1, ("tcp://*:5557", None)),
        ({"endpoint": "tcp://*:5557"}, 1, 1, ("tcp://*:5558", None)),
        # Each data-parallel copy takes a port of its own.
        ({"endpoint": "tcp://*:5557"}, 2, 4, ("tcp://*:5565", None)),
        ({"replay_endpoint": "tcp://[::1]:9000"}, 3, 1, ("tcp://*:5560", "tcp://[::1]:9003")),
        ({"endpoint": "tcp://*:0"}, 1, 1, ("tcp://*:0", None)),
        ({"endpoint": "inproc://cache"}, 1, 1, ("inproc://cache", None)),
    ],
)
def test_each_worker_publishes_at_a_port_of_its_own(
    events: dict[str, object], index: int, copies: int, expected: tuple[str, str | None]
) -> None:
    config = own_ports(_config(EVENTS | events, copies), index)
    published = json.loads(config.passthrough["kv_events_config"])
    assert (published.get("endpoint", "tcp://*:5557"), published.get("replay_endpoint")) == expected
    assert config.passthrough["max_lora_rank"] == "8"


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", "5", '{"endpoint": "tcp://*:1"}', "[" * 100_000]
)
def test_what_publishes_nothing_is_left_as_it_is(text: str) -> None:
    config = EngineConfig(model="m", passthrough={"kv_events_config": text})
    assert own_ports(config, 1) is config
    explain_ports(config.passthrough, 2, why := Explanation())
    assert why.reasons == []


@pytest.mark.parametrize(
    ("transfer", "named"),
    [
        ({"kv_connector": "P2pNcclConnector"}, "P2pNcclConnector"),
        ({"kv_connector": "MoRIIOConnector"}, "MoRIIOConnector"),
        ({**NIXL, "engine_id": "a"}, "engine_id"),
        ({**NIXL, "kv_port": 21001}, "kv_port"),
        ({**NIXL, "kv_connector_extra_config": {"http_port": "8100"}}, "http_port"),
        (
            {"kv_connector": "MultiConnector",
             "kv_connector_extra_config": {"connectors": [NIXL, {"handshake_port": 1}]}},
            "handshake_port",
        ),
        ({"kv_connector_extra_config": {"lmcache_rpc_port": "worker"}}, "lmcache_rpc_port"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("option", ["kv_transfer_config", "ec_transfer_config"])
def test_what_only_one_worker_can_have_is_refused_for_several(
    option: str, transfer: dict[str, object], named: str
) -> None:
    passthrough = {option: json.dumps(transfer)}
    explain_ports(passthrough, 1, Explanation())
    with pytest.raises(PlanError, match=rf"option\.{option}: {named} .* 3 workers.* accepted"):
        explain_ports(passthrough, 3, Explanation())


@pytest.mark.parametrize(
    "transfer",
    [NIXL, {**NIXL, "kv_port": 0}, {"kv_connector_extra_config": {"proxy_port": 30001}}],
)
def test_what_each_worker_has_by_its_number_is_said(transfer: dict[str, object]) -> None:
    why = Explanation()
    explain_ports({"kv_transfer_config": json.dumps(transfer)}, 2, why)
    assert why.reasons == [
        "ports of option.kv_transfer_config: each worker has its own, by its number"
    ]


def test_one_socket_is_not_several_workers() -> None:
    events = json.dumps(EVENTS | {"endpoint": "ipc:///tmp/events"})
    with pytest.raises(PlanError, match=r"2 workers cannot publish at one socket, ipc:///tmp"):
        explain_ports({"kv_events_config": events}, 2, Explanation())
