"""What a front end is started with: each setting once, and the socket on which it listens."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from lmi_backend.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from dataclasses import Field


BACKLOG: Final = 2048
"""Connections that wait to be accepted."""


def listen(host: str, port: int, *, is_shared: bool) -> socket.socket:
    """Return a socket that listens.

    Args:
        is_shared: whether other processes listen at the same port; else it must be free.

    Raises:
        ConfigurationError: the address cannot be had.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        message = f"the front end cannot listen on {host}:{port}: {error}"
        raise ConfigurationError(message) from error
    return listener


PORT: Final = 8080
"""Where clients of LMI and SageMaker expect a server."""
KEY_VARIABLE: Final = "LMI_API_KEY"
"""Environment variable that holds a single key of clients."""
VARIABLE: Final = "LMI_BACKEND_FRONT_END"
"""Holds the settings of a front end that `serve` starts; only its own user can read it."""
OWN_AGENT: Final = "lmi-backend"
"""The `User-Agent` of probes that `serve` sends to its own front end."""
LEAVES: Final = b"!"
"""What a front end writes into its pipe, besides dots, when it accepts no more connections."""
_OPTION: Final = "option"


class Flag(NamedTuple):
    """An option of the command line, which sets a field of the same name."""

    flag: str
    help: str
    metavar: str = ""
    variable: str = ""
    """Environment variable that holds the default."""
    is_shared: bool = True
    """Whether `serve` has the option too; `frontend` has all."""


T = TypeVar("T")


def _set_by(flag: str, default: T, help: str, **more: Any) -> T:  # noqa: A002  argparse's word
    """Return a field that an option sets."""
    return field(default=default, metadata={_OPTION: Flag(flag, help, **more)})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a front end serves, and within which limits."""

    base: Path
    """Folder for temporary files of the server, or its supervisor's run folder."""
    control_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The key of Triton's model repository."""
    awaited: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Models that `serve` loads at each start, with their names; empty where nobody says."""
    required: tuple[str, ...] = ()
    """Models without which the server is not ready."""
    api_key: str = field(default="", repr=False)
    """One key, itself."""
    triton_url: str = _set_by(
        "--triton-url",
        "http://127.0.0.1:8000",
        "Triton's HTTP port, to which V2 paths are passed (default %(default)s)",
        metavar="URL",
        is_shared=False,
    )
    metrics_url: str = _set_by(
        "--metrics-url",
        "http://127.0.0.1:8002/metrics",
        "Triton's metrics, which /metrics shows too (default %(default)s)",
        metavar="URL",
        is_shared=False,
    )
    host: str = _set_by(
        "--host",
        "127.0.0.1",
        "address to listen on; default: LMI_BACKEND_HOST, which images set to 0.0.0.0, or "
        "127.0.0.1",
        variable="LMI_BACKEND_HOST",
    )
    port: int = _set_by(
        "--port",
        PORT,
        f"default: SAGEMAKER_BIND_TO_PORT, or {PORT}, LMI's and SageMaker's",
        variable="SAGEMAKER_BIND_TO_PORT",
    )
    processes: int = _set_by(
        "--frontend-processes",
        1,
        "processes that share the port (default %(default)s)",
        metavar="N",
    )
    place: int = 0
    """Number of this one among these processes, from 0."""
    api_keys: Path | None = _set_by(
        "--api-keys",
        None,
        "keys of clients, one a line (`lmi-backend api-key NAME` makes one); read again when "
        "changed. LMI_API_KEY holds a single key. Default: no key is needed",
        metavar="FILE",
    )
    tls_certificate: Path | None = _set_by(
        "--tls-certificate",
        None,
        "speak HTTPS only, with these certificates (PEM, the server's own first). They and "
        "their key are read again when the files change, within a few seconds. Default: plain "
        "HTTP",
        metavar="FILE",
    )
    tls_key: Path | None = _set_by(
        "--tls-key", None, "its private key (PEM, without a passphrase)", metavar="FILE"
    )
    origins: tuple[str, ...] = _set_by(
        "--allowed-origins",
        (),
        "sites whose pages may send requests, as https://host; * for all. Default: this one",
        metavar="A,B",
    )
    hosts: tuple[str, ...] = _set_by(
        "--allowed-hosts",
        (),
        "names of this server, in addition to its addresses, localhost and --host; * for all. "
        "Requests with another Host header get 403. (Without --api-keys on a public address: "
        "only for the page and operators' paths.)",
        metavar="A,B",
    )
    max_body: int = _set_by(
        "--max-body", 64 << 20, "of a request (default %(default)s)", metavar="BYTES"
    )
    client_seconds: float = _set_by(
        "--client-timeout",
        60.0,
        "time a client may take to send its headers, to send its body, and to take, or only "
        "acknowledge, what it is sent (default %(default)s)",
        metavar="SECONDS",
    )
    keep_alive_seconds: float = _set_by(
        "--keep-alive",
        65.0,
        "time between two requests of a connection (default %(default)s). It must be longer "
        "than that of the load balancer, which must close first; AWS has 60",
        metavar="SECONDS",
    )
    has_page: bool = _set_by("--no-page", True, "nothing for browsers at /")
    logs_access: bool = _set_by("--no-access-log", True, "no line for each request")
    is_verbose: bool = _set_by(
        "--verbose", False, "log each GET too; default: failed ones", is_shared=False
    )


def options() -> Iterator[tuple[Field[Any], Flag]]:
    """Yield the fields that options set, and these, in the order in which help lists them."""
    for each in fields(Settings):
        if option := each.metadata.get(_OPTION):
            yield each, option


def encode(settings: Settings) -> str:
    return msgspec.json.encode(settings, enc_hook=str).decode()


def decode(text: str) -> Settings:
    return msgspec.json.decode(text, type=Settings, dec_hook=lambda kind, value: kind(value))
