"""`lmi-backend frontend`: one HTTP port for all clients, next to a server that runs."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from lmi_backend.cli.arguments import MOST_SECONDS, matching, number, path_of, port
from lmi_backend.errors import ConfigurationError
from lmi_backend.front_end_settings import KEY_VARIABLE, Settings, options
from lmi_backend.ipc.environment import RUN_DIR_VARIABLE
from lmi_backend.machine import pip_command
from lmi_backend.printable import say
from lmi_backend.repository.restricted_apis import HEADER
from lmi_backend.supervisor.control_key import read_key
from lmi_backend.supervisor.ports import check_free, url_of
from lmi_backend.supervisor.stop import StopSignals

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import Field

    from lmi_backend.front_end_settings import Flag

_LIBRARIES: Final = ("uvicorn", "uvloop", "httptools", "aiohttp", "backports.zstd")
_DRAIN_SECONDS: Final = 35.0
"""Time that running requests have when several processes are stopped; each gives them 30 s."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "frontend",
        help="one HTTP port for OpenAI's, LMI's, SageMaker's and other clients",
        description="Serve the models of a tritonserver on this machine on one HTTP port, to "
        "clients of OpenAI, Anthropic, LMI, SageMaker and Text Generation Inference. Triton's V2 "
        "paths work there too. `serve` starts it by itself. Use this command for a tritonserver "
        "that you start, as the same user, before or after. It finds models when they are loaded.",
        examples=("lmi-backend frontend --port 8080 --triton-url http://127.0.0.1:8000",),
        statuses={0: "it was told to stop"},
    )
    add_front_end_arguments(parser, is_alone=True)
    where = "where the models' endpoints are; default: where the server makes temporary files"
    parser.add_argument("--run-folder", type=path_of, metavar="FOLDER", help=where)
    parser.add_argument(
        "--control-key",
        type=path_of,
        metavar="FILE",
        help="holds the key of Triton's model repository (the header "
        f"{HEADER}), with which operators load and unload models at /models; `serve` gives its own",
    )
    parser.set_defaults(run=_frontend)


def add_front_end_arguments(parser: argparse.ArgumentParser, *, is_alone: bool = False) -> None:
    """Add the options that set a front end's settings; `is_alone`: no `serve` sets the others."""
    group = parser.add_argument_group("the front end")
    for setting, option in options():
        if option.is_shared or is_alone:
            _add(group, setting, option)


def _add(group: argparse._ArgumentGroup, setting: Field[Any], option: Flag) -> None:
    default, kind = setting.default, str(setting.type)
    if kind == "bool":
        group.add_argument(
            option.flag, dest=setting.name, action=f"store_{not default}".lower(), help=option.help
        )
        return
    group.add_argument(
        option.flag,
        dest=setting.name,
        type=_FIELDS.get(setting.name) or _KINDS[kind],
        default=os.environ.get(option.variable) or default,
        metavar=option.metavar or None,
        help=option.help,
    )


def settings_of(arguments: argparse.Namespace, **more: Any) -> Settings:
    given = vars(arguments)
    set_by_options = {each.name: given[each.name] for each, _ in options() if each.name in given}
    api_key = os.environ.get(KEY_VARIABLE, "")
    return Settings(**set_by_options | {"api_key": api_key} | more)


def _items(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


_KINDS: Final[dict[str, Callable[[str], Any]]] = {
    "str": str,
    "int": number(int, 1, 1_000_000_000_000),
    "float": number(float, 1, MOST_SECONDS),
    "Path | None": lambda text: path_of(text).absolute(),
    "tuple[str, ...]": _items,
}
"""What reads an option, by the type of the field that it sets."""
_URL: Final = matching(
    re.compile(r"https?://[^/\s]+(/\S*)?"), "a URL, such as http://127.0.0.1:8000"
)
_SITE: Final = matching(re.compile(r"\*|\w+://[^/\s]+"), "https://HOST, https://HOST:PORT or *")
_FIELDS: Final[dict[str, Callable[[str], Any]]] = {
    "triton_url": _URL,
    "metrics_url": _URL,
    "port": port,
    "processes": number(int, 1, 1024),
    "origins": lambda text: tuple(map(_SITE, _items(text))),
}
"""What reads the options of fields that take less than their type does."""


def _frontend(arguments: argparse.Namespace) -> int:
    check(arguments)
    from lmi_backend.frontend.http.access import is_loopback  # noqa: PLC0415  an extra of the package
    from lmi_backend.frontend.main import serve  # noqa: PLC0415  the same

    triton = urlsplit(given := arguments.triton_url)
    is_here = is_loopback(triton.hostname or "") or triton.hostname == arguments.host.lower()
    if is_here and triton.port == arguments.port:
        raise ConfigurationError(f"--triton-url {given}: is this front end's; accepted: Triton's")
    say(f"the front end listens on {own_url(arguments)}")
    key_file = arguments.control_key
    settings = settings_of(
        arguments,
        base=arguments.run_folder
        or Path(os.environ.get(RUN_DIR_VARIABLE) or tempfile.gettempdir()),
        control_headers={HEADER: read_key(key_file, is_made=False)} if key_file else {},
    )
    return _serve_many(settings) if settings.processes > 1 else serve(settings)


def check(arguments: argparse.Namespace, instead: str = "") -> None:
    """Look for all that a front end needs at its start: `serve` would start it again and again."""
    if missing := [name for name in _LIBRARIES if not _is_there(name)]:
        raise ConfigurationError(
            f"--port {arguments.port}: the front end needs {', '.join(missing)}; accepted: "
            f"the extra `frontend`, as by {pip_command('frontend')}{instead}"
        )
    check_free("--port", "--host", arguments.host, arguments.port)
    from lmi_backend.frontend.http.api_keys import ApiKeys  # noqa: PLC0415  another process's
    from lmi_backend.frontend.http.certificate import certificate_of  # noqa: PLC0415  the same

    certificate_of(arguments.tls_certificate, arguments.tls_key)
    ApiKeys(arguments.api_keys)
    if warning := exposure(arguments):
        say(warning, "WARNING")


def _is_there(library: str) -> bool:
    try:
        return importlib.util.find_spec(library) is not None
    except ModuleNotFoundError:  # Of a package whose parent is missing.
        return False


def _serve_many(settings: Settings) -> int:
    from lmi_backend.supervisor.front_end import FrontEnds  # noqa: PLC0415  not in each of them

    stop = StopSignals()
    with stop.listening():
        front_ends = FrontEnds(settings)
        front_ends.keep(stop.wait, _DRAIN_SECONDS, lambda: stop.is_urgent)
    return 0


def own_url(arguments: argparse.Namespace) -> str:
    scheme = "https" if arguments.tls_certificate else "http"
    return url_of(arguments.host, arguments.port, scheme)


def needs_key(arguments: argparse.Namespace) -> bool:
    return arguments.api_keys is not None or bool(os.environ.get(KEY_VARIABLE))


def exposure(arguments: argparse.Namespace) -> str:
    from lmi_backend.frontend.http.access import is_loopback  # noqa: PLC0415  the front end's

    if is_loopback(arguments.host):
        return ""
    if not needs_key(arguments):
        return (
            f"the front end listens on {arguments.host} and requires no key: anyone who reaches it "
            "may use the models (--api-keys), under any name (--allowed-hosts)"
        )
    if arguments.tls_certificate is None:
        return (
            f"keys and prompts come to {arguments.host} unencrypted, unless what is before this "
            "port speaks TLS (--tls-certificate, --tls-key)"
        )
    return ""


def triton_exposure(arguments: argparse.Namespace) -> str:
    from lmi_backend.frontend.http.access import is_loopback  # noqa: PLC0415  the front end's

    host = arguments.triton_host
    if is_loopback(host):
        return ""
    is_way_round = needs_key(arguments) and not arguments.no_frontend
    what = "goes round --api-keys" if is_way_round else "may use the models"
    return f"Triton's ports listen on {host} and need no key: anyone who reaches them {what}"
