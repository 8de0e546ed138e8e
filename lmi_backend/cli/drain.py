"""`lmi-backend drain`: before a server is stopped, let its requests end."""

from __future__ import annotations

import socket
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from lmi_backend.errors import ConfigurationError, UnavailableError
from lmi_backend.repository.entries import SHARES
from lmi_backend.serving.knocking import Draining, find_doors, is_door_of
from lmi_backend.supervisor.progress import say
from lmi_backend.supervisor.triton_http import TritonHttp
from lmi_backend.workers.pool import RUN_DIR_VARIABLE

if TYPE_CHECKING:
    import argparse

_OK = 200
_POLL_SECONDS = 0.1
_PROGRESS_SECONDS = 5.0


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command of this module."""
    parser = commands.add_parser(
        "drain",
        help="let a server's requests end before it is stopped",
        description="Let the models of a tritonserver on this machine take no more requests, and "
        "wait until those that run have ended; what takes too long is ended with an error. As a "
        "pre-stop hook of a container. Run it as the server's user, where the server runs.",
    )
    parser.add_argument(
        "url",
        nargs="?",
        default="http://127.0.0.1:8000",
        metavar="URL",
        help="the server's HTTP port (%(default)s)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="time running requests have to finish (default %(default)s)",
    )
    parser.set_defaults(run=_drain)


@dataclass(frozen=True)
class LocalServer:
    """A tritonserver on this machine."""

    client: TritonHttp
    doors: list[Path]

    @classmethod
    def at(cls, url: str) -> LocalServer:
        """Find the server that listens at a URL.

        Raises:
            UnavailableError: nobody listens there whom this user may look at.
        """
        client = TritonHttp(url, timeout=5.0)
        pid = _listener(client.port) if _is_here(client.host) else None
        if pid is None:
            problem = f"{url}: no process of this user listens there"
            accepted = "the command must run where the server runs, as its user"
            raise UnavailableError(f"{problem}; {accepted}")
        environment = psutil.Process(pid).environ()
        base = environment.get(RUN_DIR_VARIABLE) or environment.get("TMPDIR")
        return cls(client, find_doors(pid, Path(base or tempfile.gettempdir())))

    def unload(self) -> bool:
        """Let every model of ours be not ready; return whether the server lets one do so."""
        names = [model["name"] for model in self.client.index() if self._is_ours(model)]
        path = "/v2/repository/models/{}/unload"
        statuses = [self.client.status(path.format(n), method="POST", body={}) for n in names]
        return all(status == _OK for status in statuses)

    def _is_ours(self, model: dict[str, Any]) -> bool:
        if model.get("state") != "READY":
            return False
        if any(is_door_of(door, model["name"]) for door in self.doors):
            return True
        config = self.client.json(f"/v2/models/{model['name']}/config")
        return SHARES in config.get("parameters", {})


def _is_here(host: str) -> bool:
    """Tell whether a host is this machine."""
    try:
        asked = {found[4][0] for found in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    own = {each.address for card in psutil.net_if_addrs().values() for each in card}
    return bool(asked & own)


def _listener(port: int) -> int | None:
    try:
        connections = psutil.net_connections("tcp")
    except psutil.AccessDenied as error:
        message = f"the processes of this machine cannot be looked at: {error}"
        raise ConfigurationError(message) from error
    return next(
        (
            each.pid
            for each in connections
            if each.status == psutil.CONN_LISTEN and each.laddr.port == port and each.pid
        ),
        None,
    )


def _drain(arguments: argparse.Namespace) -> int:
    server = LocalServer.at(arguments.url)
    if not server.doors:
        message = f"{arguments.url}: has no model of lmi-backend"
        raise UnavailableError(message)
    draining = Draining(server.doors, arguments.timeout)
    if not server.unload():
        say("models stay ready, but refuse requests: unloading needs --model-control-mode=explicit")
    began = said = time.monotonic()
    while not draining.is_over:
        time.sleep(_POLL_SECONDS)
        if time.monotonic() - said > _PROGRESS_SECONDS:
            said = time.monotonic()
            say(f"waiting for running requests: {said - began:.0f} s of {arguments.timeout:.0f}")
    cut = f"; {draining.cut} requests took too long and got an error" if draining.cut else ""
    say(f"drained {len(server.doors)} models in {time.monotonic() - began:.1f} s{cut}")
    return 0
