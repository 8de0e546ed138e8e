"""Which of Triton's APIs are not for clients, and the arguments that restrict them.

A restricted API answers only who sends a key: as an HTTP header, or as gRPC metadata whose name
Triton prefixes (docs/protocol/extension_* and `--http-restricted-api` of triton-inference-server).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

NOT_FOR_CLIENTS: Final = {
    "model-repository": "a client may run code as the server's user (`file:` of a load), read "
    "folders, and load and unload models",
    "shared-memory": "a client may read and write the requests of others, and stop the server",
    "logging": "a client may change what the server logs, and where",
    "trace": "a client may have requests written to files",
}
"""What a client of an unrestricted API may do. Other APIs of Triton are for clients."""

KEY_VARIABLES: Final = ("LMI_BACKEND_HTTP_KEY", "LMI_BACKEND_GRPC_KEY")
"""Environment of a server that `serve` starts: its arguments of `Restriction.arguments`."""
HEADER: Final = "lmi-backend-key"
_HTTP: Final = "--http-restricted-api"
_GRPC: Final = "--grpc-restricted-protocol"
# Triton compares the APIs' names as they stand, and takes what follows the first "=" for the key.
_VALUE: Final = re.compile(r"(?P<apis>[a-z,-]+):(?P<header>[^=]+)=(?P<key>.*)", re.DOTALL)
# Before this release a client of SageMaker's or Vertex AI's port reaches restricted APIs
# (CVE-2026-24206, 24207).
_SAFE_PORTS: Final = "26.03"
# From this release on Triton keeps clients' shared memory off by itself (server#8721).
_SAFE_MEMORY: Final = "26.04"
CLIENT_MEMORY: Final = "--allow-client-shm"
_TRUE: Final = frozenset({"true", "1", "on"})


@dataclass(frozen=True)
class Restriction:
    """Some APIs and the key that opens them."""

    apis: tuple[str, ...]
    key: str

    @property
    def headers(self) -> dict[str, str]:
        """What an HTTP client sends; gRPC's metadata is this with a prefix."""
        return {HEADER: self.key} if self.apis else {}

    def arguments(self) -> tuple[str, ...]:
        """Return tritonserver's arguments."""
        value = f"{','.join(self.apis)}:{HEADER}={self.key}"
        return (f"{_HTTP}={value}", f"{_GRPC}={value}") if self.apis else ()


def headers_for(api: str, arguments: Sequence[str]) -> dict[str, str]:
    """Return what an HTTP client has to send to use an API of a server with such arguments."""
    matches = (_VALUE.fullmatch(value) for value in _values(_HTTP, arguments))
    for match in filter(None, matches):
        if api in match["apis"].split(","):
            return {match["header"]: match["key"]}
    return {}


def exposures(arguments: Sequence[str], environment: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each flag by which a tritonserver leaves something open to clients.

    Args:
        environment: of the server; NVIDIA's images name their release in it.
    """
    for protocol, flag in (("HTTP", _HTTP), ("gRPC", _GRPC)):
        if not _is_on(f"--allow-{protocol.lower()}", arguments, default=True):
            continue
        matches = (_VALUE.fullmatch(value) for value in _values(flag, arguments))
        closed = {api for match in matches if match for api in match["apis"].split(",")}
        open_apis = [
            api
            for api in NOT_FOR_CLIENTS
            if api not in closed and _is_there(api, arguments, environment)
        ]
        if open_apis:
            yield f"{', '.join(open_apis)}: open over {protocol} ({flag})"
    if _release(environment) < _SAFE_PORTS:
        is_vertex = environment.get("AIP_MODE") == "PREDICTION"
        for flag, default in (("--allow-sagemaker", False), ("--allow-vertex-ai", is_vertex)):
            if _is_on(flag, arguments, default=default):
                yield f"{flag} gives a way around restricted APIs before release {_SAFE_PORTS}"


def _is_there(api: str, arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    if api == "model-repository":
        return _values("--model-control-mode", arguments)[-1:] == ["explicit"]
    if api == "shared-memory":
        # A server that is given the flag has it, whatever is known of its release.
        is_older = _release(environment) < _SAFE_MEMORY
        return _is_on(CLIENT_MEMORY, arguments, default=is_older)
    return True


def _release(environment: Mapping[str, str]) -> str:
    """Return a server's release such as 24.10; an old one where it is not told."""
    version = environment.get("NVIDIA_TRITON_SERVER_VERSION", "")
    return version if re.match(r"\d\d\.\d\d", version) else "00.00"


def _is_on(flag: str, arguments: Sequence[str], *, default: bool) -> bool:
    values = _values(flag, arguments)
    return values[-1].lower() in _TRUE if values else default


def _values(flag: str, arguments: Sequence[str]) -> list[str]:
    """Return what an argument is set to, each time: in one argument, or in two."""
    together = [a.partition("=")[2] for a in arguments if a.startswith(f"{flag}=")]
    after = [following for each, following in pairwise(arguments) if each == flag]
    return together + after
