"""Ports that an option gives to an engine, where several workers on a machine would share them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.errors import PlanError
from lmi_backend.options.argument_types import json_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lmi_backend.engine_config import EngineConfig
    from lmi_backend.plan.engine_plan import Explanation

EVENTS: Final = "kv_events_config"
TRANSFERS: Final = ("kv_transfer_config", "ec_transfer_config")
_ENDPOINTS: Final = {"endpoint": "tcp://*:5557", "replay_endpoint": None}
"""Of vLLM's events of KV blocks, with their defaults."""
_PORT: Final = re.compile(r"(tcp://.*:)([1-9]\d*)")
# What names one worker among all, or is listened at: a second worker would be taken for the first.
_OWN: Final = re.compile(
    r"engine_id|(kv|http|handshake|notify|side_channel|bootstrap|zmq|\w*rpc)_port"
)
# Has such ports also where its configuration names none.
_OWN_BY_DEFAULT: Final = frozenset({"P2pNcclConnector", "MoRIIOConnector"})


def explain_ports(passthrough: Mapping[str, str], workers: int, report: Explanation) -> None:
    """Say how ports are shared out, and refuse those that only one worker can have.

    Raises:
        PlanError: several workers would have one port of a connector, or one name.
    """
    if workers == 1:
        return
    for option in (name for name in TRANSFERS if name in passthrough):
        own = next(_own_settings(json_of(passthrough[option])), None)
        if own is not None:
            raise PlanError(
                f"option.{option}: {own} is one worker's own, and {workers} workers are planned; "
                "accepted: one worker (gpu.maxWorkers=1, or option.tensor_parallel_degree=max)"
            )
        report.reasons.append(f"ports of option.{option}: each worker has its own, by its number")
    events = _events(passthrough)
    for endpoint in (events.get(name, default) for name, default in _ENDPOINTS.items()):
        if isinstance(endpoint, str) and events and endpoint.startswith("ipc:"):
            raise PlanError(
                f"option.{EVENTS}: {workers} workers cannot publish at one socket, {endpoint}; "
                "accepted: tcp://*:PORT (each worker uses the next port), or one worker"
            )
    if events:
        report.reasons.append(
            f"option.{EVENTS}: worker N publishes at the port of its endpoint plus N"
        )


def own_ports(config: EngineConfig, index: int) -> EngineConfig:
    """Return the configuration of one of several workers, with ports of its own.

    vLLM does the same for its data-parallel copies, which take a port each.

    Args:
        index: its number.
    """
    events, offset = _events(config.passthrough), index * copies(config)
    if not index or not events:
        return config
    for name, default in _ENDPOINTS.items():
        endpoint = events.get(name, default)
        if isinstance(endpoint, str) and (found := _PORT.fullmatch(endpoint)):
            events[name] = f"{found[1]}{int(found[2]) + offset}"
    return replace(config, passthrough={**config.passthrough, EVENTS: json.dumps(events)})


def copies(config: EngineConfig) -> int:
    """Return how many data-parallel copies a worker has."""
    return int(config.arguments.get("data_parallel_size", 1))


def _events(passthrough: Mapping[str, str]) -> dict[str, Any]:
    """Return how vLLM publishes what becomes of KV blocks; nothing where it does not."""
    events = json_of(passthrough.get(EVENTS, ""))
    is_on = isinstance(events, dict) and events.get("enable_kv_cache_events")
    return events if is_on else {}


def _own_settings(value: Any) -> Iterator[str]:
    """Yield the names of settings, at any depth, that only one worker can have."""
    if isinstance(value, list):
        for each in value:
            yield from _own_settings(each)
    if not isinstance(value, dict):
        return
    for name, setting in value.items():
        if setting and _OWN.fullmatch(name):
            yield name
        if name == "kv_connector" and setting in _OWN_BY_DEFAULT:
            yield str(setting)
        yield from _own_settings(setting)
