"""`lmi-backend frontend`: one HTTP port for all clients, beside a server that runs."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lmi_backend.deploy.needs import PORT
from lmi_backend.errors import ConfigurationError
from lmi_backend.extras import pip_command
from lmi_backend.ipc.environment import RUN_DIR_VARIABLE
from lmi_backend.printable import say
from lmi_backend.repository.restricted_apis import HEADER, KEY_VARIABLES, headers_for
from lmi_backend.supervisor.control_key import read_key
from lmi_backend.supervisor.stop import Stop

if TYPE_CHECKING:
    from lmi_backend.frontend.certificate import Certificate

_MOST_SECONDS: Final = 86_400
_DRAIN_SECONDS: Final = 35.0
"""Time that running requests have when several processes are stopped; each gives them 30 s."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command of this module."""
    parser = commands.add_parser(
        "frontend",
        help="one HTTP port for OpenAI's, LMI's, SageMaker's and other clients",
        description="Serve the models of a tritonserver of this machine to OpenAI's, LMI's, "
        "SageMaker's and Text Generation Inference's clients on one HTTP port, and pass Triton's "
        "own V2 paths on. `serve --port` starts it by itself; use this command beside a "
        "tritonserver that you start yourself, as the same user. It finds models as they are "
        "loaded, and may be started before the server.",
    )
    add_front_end_arguments(parser)
    parser.add_argument(
        "--triton-url",
        default="http://127.0.0.1:8000",
        metavar="URL",
        help="Triton's HTTP port, to which V2 paths are passed (default %(default)s)",
    )
    parser.add_argument(
        "--metrics-url",
        default="http://127.0.0.1:8002/metrics",
        metavar="URL",
        help="Triton's metrics, which /metrics shows too (default %(default)s)",
    )
    parser.add_argument(
        "--run-folder",
        type=Path,
        metavar="FOLDER",
        help="where the models' endpoints are; default: where the server makes temporary files",
    )
    parser.add_argument(
        "--control-key",
        type=Path,
        metavar="FILE",
        help="holds the key of Triton's model repository (the header "
        f"{HEADER}), with which operators load and unload models at /models; `serve` gives its own",
    )
    parser.add_argument("--awaited", type=_items, default=(), help=argparse.SUPPRESS)
    parser.add_argument("--share", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--heartbeat", type=int, default=-1, help=argparse.SUPPRESS)
    parser.set_defaults(run=_frontend)


def add_front_end_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `frontend` and `serve` share."""
    group = parser.add_argument_group("the front end")
    group.add_argument(
        "--host",
        default=os.environ.get("LMI_BACKEND_HOST", "127.0.0.1"),
        help="address to listen on; default: LMI_BACKEND_HOST, which images set to 0.0.0.0, or "
        "127.0.0.1",
    )
    group.add_argument(
        "--port",
        type=int,
        default=os.environ.get("SAGEMAKER_BIND_TO_PORT", str(PORT)),
        help=f"default: SAGEMAKER_BIND_TO_PORT, or {PORT}, LMI's and SageMaker's",
    )
    group.add_argument(
        "--frontend-processes",
        type=int,
        default=1,
        metavar="N",
        help="processes that share the port (default %(default)s)",
    )
    _add_access(group)
    group.add_argument(
        "--max-body",
        type=int,
        default=64 << 20,
        metavar="BYTES",
        help="of a request (default %(default)s)",
    )
    _add_times(group)
    group.add_argument("--no-page", action="store_true", help="nothing for browsers at /")
    group.add_argument("--no-access-log", action="store_true", help="no line for each request")


def _add_access(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--api-keys",
        type=Path,
        metavar="FILE",
        help="who may ask, a key a line (`lmi-backend api-key NAME` makes one); read again when it "
        "changes. LMI_API_KEY holds a single key. Default: no key is needed",
    )
    group.add_argument(
        "--tls-certificate",
        type=Path,
        metavar="FILE",
        help="speak HTTPS only, with these certificates (PEM, the server's own first). They and "
        "their key are read again when the files change, within a few seconds. Default: plain HTTP",
    )
    group.add_argument(
        "--tls-key",
        type=Path,
        metavar="FILE",
        help="its private key (PEM, without a passphrase)",
    )
    group.add_argument(
        "--allowed-origins",
        type=_items,
        default=(),
        metavar="A,B",
        help="web sites whose pages may ask, as https://host; * for all. Default: none but this",
    )
    group.add_argument(
        "--allowed-hosts",
        type=_items,
        default=(),
        metavar="A,B",
        help="names of this server, in addition to its addresses, localhost and --host; * for all. "
        "Under other names pages, operators and, where no key is needed, everybody but probes get "
        "403. Default on a port of the network without keys: other names are refused to pages and "
        "operators only",
    )


def _add_times(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--client-timeout",
        type=_seconds,
        default=60.0,
        metavar="SECONDS",
        help="time a client may take to send its headers, to send its body, and to take, or only "
        "acknowledge, what it is sent (default %(default)s)",
    )
    group.add_argument(
        "--keep-alive",
        type=_seconds,
        default=65.0,
        metavar="SECONDS",
        help="time a connection may do nothing between two requests; more than that of the load "
        "balancer, which must be the one to close (default %(default)s, for AWS's 60)",
    )


def front_end_words(arguments: argparse.Namespace) -> list[str]:
    """Return what `serve` was given for the front end, as `frontend` takes it."""
    words = [
        f"--host={arguments.host}",
        f"--port={arguments.port}",
        f"--max-body={arguments.max_body}",
        f"--client-timeout={arguments.client_timeout}",
        f"--keep-alive={arguments.keep_alive}",
        f"--allowed-origins={','.join(arguments.allowed_origins)}",
        f"--allowed-hosts={','.join(arguments.allowed_hosts)}",
    ]
    if arguments.api_keys is not None:
        words.append(f"--api-keys={arguments.api_keys.absolute()}")
    if arguments.tls_certificate is not None:
        words.append(f"--tls-certificate={arguments.tls_certificate.absolute()}")
        words.append(f"--tls-key={arguments.tls_key.absolute()}")
    words += ["--no-page"] if arguments.no_page else []
    return [*words, "--no-access-log"] if arguments.no_access_log else words


def certificate_of(arguments: argparse.Namespace) -> Certificate | None:
    """Return the certificate that the options name; None for plain HTTP.

    Raises:
        ConfigurationError: it cannot be used.
    """
    given = arguments.tls_certificate, arguments.tls_key
    if given == (None, None):
        return None
    if None in given:
        is_key = arguments.tls_certificate is None
        said, missing = ("--tls-key", "--tls-certificate")[:: 1 if is_key else -1]
        raise ConfigurationError(f"{missing}: is missing beside {said}; accepted: both, or neither")
    from lmi_backend.frontend.certificate import Certificate  # noqa: PLC0415  another process's

    return Certificate(*given)


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 1 <= (seconds := float(text)) <= _MOST_SECONDS:
            return seconds
    raise argparse.ArgumentTypeError(f"{text}: accepted: 1 to {_MOST_SECONDS} seconds")


def _items(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _frontend(arguments: argparse.Namespace) -> int:
    try:
        from lmi_backend.frontend.app import Settings  # noqa: PLC0415  an extra of the package
        from lmi_backend.frontend.log import log_to_stderr  # noqa: PLC0415
        from lmi_backend.frontend.server import serve  # noqa: PLC0415
    except ImportError as error:
        message = f"the front end needs {pip_command('frontend')}: {error}"
        raise ConfigurationError(message) from error
    certificate = certificate_of(arguments)
    # Who starts several of them has said it.
    if not arguments.share and (warning := exposure(arguments)):
        say(warning)
    if arguments.frontend_processes > 1:
        return _serve_many(arguments.frontend_processes)
    log_to_stderr()
    base = arguments.run_folder or os.environ.get(RUN_DIR_VARIABLE) or tempfile.gettempdir()
    key = os.environ.get("LMI_API_KEY", "")
    settings = Settings(
        base=Path(base),
        triton_url=arguments.triton_url,
        metrics_url=arguments.metrics_url,
        control_headers=_control_headers(arguments.control_key),
        awaited=arguments.awaited,
        max_body=arguments.max_body,
        client_seconds=arguments.client_timeout,
        keep_alive_seconds=arguments.keep_alive,
        logs_access=not arguments.no_access_log,
        api_keys=arguments.api_keys,
        api_key=key,
        host=arguments.host,
        processes=arguments.share or 1,
        origins=arguments.allowed_origins,
        hosts=arguments.allowed_hosts,
        has_page=not arguments.no_page,
    )
    return serve(settings, arguments.host, arguments.port, certificate, arguments.heartbeat)


def _serve_many(count: int) -> int:
    """Run some processes of this command until a signal."""
    from lmi_backend.supervisor.front_end import FrontEnds  # noqa: PLC0415  not in each of them

    stop = Stop()
    with stop.listening():
        words = sys.argv[sys.argv.index("frontend") + 1 :]
        kept = FrontEnds([*words, "--frontend-processes=1"], count, {})
        kept.keep(stop.wait, _DRAIN_SECONDS, lambda: stop.is_urgent)
    return 0


def _control_headers(key_file: Path | None) -> dict[str, str]:
    if key_file is not None:
        return {HEADER: read_key(key_file, is_made=False)}
    return headers_for("model-repository", [os.environ.get(KEY_VARIABLES[0], "")])


def exposure(arguments: argparse.Namespace) -> str:
    """Return what is open to whoever reaches the port; empty where nothing is."""
    from lmi_backend.frontend.hosts import is_loopback  # noqa: PLC0415  the front end's

    if is_loopback(arguments.host):
        return ""
    if not os.environ.get("LMI_API_KEY") and arguments.api_keys is None:
        return (
            f"the front end listens on {arguments.host} and asks nobody for a key: whoever reaches "
            "it may use the models (--api-keys), under any name (--allowed-hosts)"
        )
    if arguments.tls_certificate is None:
        return (
            f"keys and prompts come to {arguments.host} unencrypted, unless what is before this "
            "port speaks TLS (--tls-certificate, --tls-key)"
        )
    return ""
