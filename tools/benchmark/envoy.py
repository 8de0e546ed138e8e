"""Envoy before servers of ours, as a router of a fleet."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmark.servers import free_port, process

BINARY: Final = Path(sys.executable).with_name("envoy")
_TYPES: Final = "type.googleapis.com/envoy.extensions.filters"
_LIMITS: Final = ("max_connections", "max_requests", "max_pending_requests")
_MANY: Final = 100_000


@contextmanager
def envoy(addresses: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Start it before some servers; give its address, and the process id of its group."""
    port = free_port()

    def command(folder: Path) -> list[str]:
        path = folder / "envoy.json"
        path.write_text(json.dumps(_config(port, addresses)), encoding="utf-8")
        return [str(BINARY), "-c", str(path), "--disable-hot-restart", "--concurrency", "1"]

    with process(command, f"http://127.0.0.1:{port}/ping") as started:
        yield f"127.0.0.1:{port}", started.pid


def _config(port: int, addresses: Sequence[str]) -> dict[str, Any]:
    route = {"match": {"prefix": "/"}, "route": {"cluster": "servers", "timeout": "0s"}}
    manager = {
        "@type": f"{_TYPES}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "clients",
        "stream_idle_timeout": "0s",
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{_TYPES}.http.router.v3.Router"},
            }
        ],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
    }
    name = "envoy.filters.network.http_connection_manager"
    chain = {"filters": [{"name": name, "typed_config": manager}]}
    listener = {"name": "clients", "address": _address("127.0.0.1", port), "filter_chains": [chain]}
    servers = [{"endpoint": {"address": _address(*each.split(":"))}} for each in addresses]
    cluster = {
        "name": "servers",
        "connect_timeout": "5s",
        "lb_policy": "LEAST_REQUEST",
        "load_assignment": {"cluster_name": "servers", "endpoints": [{"lb_endpoints": servers}]},
        "circuit_breakers": {"thresholds": [dict.fromkeys(_LIMITS, _MANY)]},
    }
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


def _address(host: str, port: int | str) -> dict[str, Any]:
    return {"socket_address": {"address": host, "port_value": int(port)}}
