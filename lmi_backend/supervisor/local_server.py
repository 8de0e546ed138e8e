"""Find a tritonserver of this machine by the port it listens on."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from lmi_backend.endpoint.control import find_endpoints, is_endpoint_of
from lmi_backend.errors import ConfigurationError, UnavailableError
from lmi_backend.front_end_settings import VARIABLE, decode
from lmi_backend.ipc.environment import RUN_DIR_VARIABLE
from lmi_backend.ipc.survivor import is_served
from lmi_backend.pool.load_failure import LoadFailure, has_failed
from lmi_backend.repository.restricted_apis import KEY_VARIABLES, headers_for
from lmi_backend.repository.variants import SHARES
from lmi_backend.supervisor.processes import argv_of
from lmi_backend.supervisor.triton_http import TritonHttp


@dataclass(frozen=True)
class LocalServer:
    """A tritonserver on this machine, whose restricted APIs its own user may use."""

    client: TritonHttp
    endpoints: list[Path]
    is_supervised: bool = False
    """Whether a `serve` keeps it up, and loads again what could not be loaded."""

    @classmethod
    def at(cls, url: str) -> LocalServer:
        """Find the server that listens at a URL, or the one behind a front end of `serve`."""
        client = TritonHttp(url)
        listeners = _listeners(client.port) if _is_here(client.host) else [None]
        if not listeners:
            raise UnavailableError(f"{url}: nothing listens there; is the server started?")
        pid = next(filter(None, listeners), None)
        if pid is None:
            problem = f"{url}: no process of this user listens there"
            accepted = "the command must run where the server runs, as its user"
            raise UnavailableError(f"{problem}; {accepted}")
        process = psutil.Process(pid)
        environment = process.environ()
        if VARIABLE in environment:
            return cls.at(decode(environment[VARIABLE]).triton_url)
        # A server that `serve` has started has its key in its environment.
        hidden = [environment[name] for name in KEY_VARIABLES if name in environment]
        headers = headers_for("model-repository", hidden + argv_of(process))
        run = environment.get(RUN_DIR_VARIABLE)
        base = Path(run or environment.get("TMPDIR") or tempfile.gettempdir())
        endpoints = find_endpoints(pid, base)
        restarts = bool(run) and is_served(base)
        return cls(TritonHttp(url, timeout=5.0, headers=headers), endpoints, restarts)

    def models(self) -> Iterator[tuple[str, str, Path | None]]:
        """Yield name, state and endpoint of each LMI model; an alias model has no endpoint."""
        for model in self.client.index():
            name, state = model["name"], model.get("state", "")
            endpoint = next((each for each in self.endpoints if is_endpoint_of(each, name)), None)
            if endpoint or (state == "READY" and self._is_alias(name)):
                yield name, state, endpoint

    def failed(self) -> dict[str, str]:
        return {
            row["name"]: LoadFailure.of(row["name"], row["reason"]).brief
            for row in self.client.index()
            if has_failed(row.get("state", ""), row.get("reason", ""))
        }

    def unload(self) -> bool:
        try:
            names = [name for name, state, _ in self.models() if state == "READY"]
        except UnavailableError:
            return False
        unloaded = [self.client.unload(name) for name in names]
        return all(unloaded)

    def _is_alias(self, name: str) -> bool:
        config: dict[str, Any] = self.client.json(f"/v2/models/{name}/config")
        return SHARES in config.get("parameters", {})


def _is_here(host: str) -> bool:
    try:
        addresses = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    own = {each.address for interface in psutil.net_if_addrs().values() for each in interface}
    return bool(addresses & own)


def _listeners(port: int) -> list[int | None]:
    """Return the listeners of a port; None for each process that this user may not look at."""
    try:
        connections = psutil.net_connections("tcp")
    except psutil.AccessDenied as error:
        message = f"the processes of this machine cannot be looked at: {error}"
        raise ConfigurationError(message) from error
    return [
        each.pid
        for each in connections
        if each.status == psutil.CONN_LISTEN and each.laddr.port == port
    ]
