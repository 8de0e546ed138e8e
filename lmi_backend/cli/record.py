"""`lmi-backend record`: a proxy that writes the requests and answers that pass it."""

from __future__ import annotations

import argparse
import asyncio
import ssl
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from lmi_backend.cli.arguments import percent
from lmi_backend.cli.frontend import check_certificate
from lmi_backend.cli.planning import parse_size
from lmi_backend.errors import ConfigurationError
from lmi_backend.extras import pip_command
from lmi_backend.printable import say
from lmi_backend.supervisor.ports import url_of

if TYPE_CHECKING:
    from lmi_backend.migrate.proxy import ProxySettings
    from lmi_backend.migrate.recording import Files

_SMALLEST: Final = 1 << 20


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "record",
        help="a proxy that records requests and answers, for `replay`",
        description="Pass requests on to a server and its answers back, without changing a byte, "
        "until SIGTERM. Write both into a folder that only you can read, for `replay`. Keys, "
        "cookies and other secrets in headers and addresses are not written; bodies are.",
        examples=("lmi-backend record recorded --url http://127.0.0.1:8080 --port 8090",),
        statuses={0: "it was told to stop"},
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the files are written")
    parser.add_argument("--url", required=True, help="the server: http://HOST:PORT")
    parser.add_argument("--host", default="127.0.0.1", help="listen here (%(default)s)")
    parser.add_argument("--port", type=int, default=8090, help="listen here (%(default)s)")
    parser.add_argument(
        "--sample",
        type=percent,
        default=100.0,
        metavar="N%",
        help="write this share of the requests (default 100%%)",
    )
    parser.add_argument(
        "--max-disk",
        default="1GiB",
        metavar="SIZE",
        help="remove the oldest files above this size (default %(default)s)",
    )
    parser.add_argument(
        "--tls-certificate", type=Path, metavar="FILE", help="speak TLS to clients with it"
    )
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="key of the certificate")
    parser.add_argument(
        "--ca-certificates",
        type=Path,
        metavar="FILE",
        help="trust a server whose certificate these authorities signed",
    )
    parser.set_defaults(run=_record)


def _record(arguments: argparse.Namespace) -> int:
    try:
        from lmi_backend.migrate.proxy import ProxySettings  # noqa: PLC0415  an extra of the package
        from lmi_backend.migrate.recording import Files  # noqa: PLC0415  with the one below
    except ImportError as error:
        message = f"record needs {pip_command('migrate')}: {error}"
        raise ConfigurationError(message) from error
    check_certificate(arguments)
    most = parse_size(arguments.max_disk, "--max-disk")
    if most < _SMALLEST:
        raise ConfigurationError(f"--max-disk {arguments.max_disk}: accepted: 1MiB or more")
    if not arguments.sample:
        raise ConfigurationError("--sample 0%: accepted: more than 0%, at most 100%")
    settings = ProxySettings(
        upstream=_address(arguments.url),
        host=arguments.host,
        port=arguments.port,
        share=arguments.sample / 100,
        tls=_server_context(arguments),
        upstream_tls=_client_context(arguments),
    )
    files = Files(arguments.folder, most)
    try:
        return _serve(settings, files, arguments.folder)
    finally:
        files.close()
        say(f"{files.written} requests written, {files.dropped} too large or too many at once")


def _serve(settings: ProxySettings, files: Files, folder: Path) -> int:
    from lmi_backend.migrate.proxy import Proxy  # noqa: PLC0415  an extra of the package

    def ready(port: int) -> None:
        scheme = "https" if settings.tls else "http"
        at = url_of(settings.host, port, scheme)
        sys.stdout.write(f"recording {settings.upstream} at {at} into {folder}\n")
        sys.stdout.flush()

    try:
        asyncio.run(Proxy(settings, files).run(ready))
    except OSError as error:
        at = f"{settings.host}:{settings.port}"
        raise ConfigurationError(f"{at}: cannot listen: {error.strerror or error}") from error
    return 0


def _address(url: str) -> str:
    parts = urlsplit(url)
    try:
        is_right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_right = False
    if not is_right or parts.path.strip("/") or parts.query:
        raise ConfigurationError(f"--url {url}: accepted: http://HOST:PORT, without a path")
    return url


def _server_context(arguments: argparse.Namespace) -> ssl.SSLContext | None:
    if arguments.tls_certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(arguments.tls_certificate, arguments.tls_key)
    return context


def _client_context(arguments: argparse.Namespace) -> ssl.SSLContext | None:
    if urlsplit(arguments.url).scheme != "https":
        return None
    try:
        return ssl.create_default_context(cafile=arguments.ca_certificates)
    except OSError as error:
        file = arguments.ca_certificates
        raise ConfigurationError(f"--ca-certificates {file}: cannot be read: {error}") from error
