"""A command for a front end, as it is set up: its host, its certificate, its keys."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.front_end_settings import KEY_VARIABLE
from lmi_backend.supervisor.ports import address_of, url_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROMPT: Final = "The capital of France is"
_SECONDS: Final = 5.0


def curl_command(
    arguments: argparse.Namespace, names: Sequence[str], prompt: str, certified: str
) -> str:
    """Return a command that requests an answer of the first model.

    Args:
        arguments: of `serve` or `frontend`.
        names: of all models; where there are several, the request says which.
        prompt: its prompt.
        certified: a host of the server's certificate; empty without TLS, and if none is known.
    """
    named = {"model": names[0]} if len(names) > 1 else {}
    body = json.dumps({**named, "inputs": prompt, "parameters": {"max_new_tokens": 20}})
    words = ["curl", "-s", *_trust(arguments, certified)]
    if needs_key(arguments):
        words += ["-H", f'"Authorization: Bearer ${KEY_VARIABLE}"']
    url = shlex.quote(f"{base_url(arguments, certified)}/invocations")
    return " ".join([*words, url, "-d", shlex.quote(body)])


def base_url(arguments: argparse.Namespace, certified: str = "") -> str:
    """Return the front end's address for a client on this machine."""
    scheme = "https" if arguments.tls_certificate else "http"
    return url_of(certified or arguments.host, arguments.port, scheme)


def needs_key(arguments: argparse.Namespace) -> bool:
    """Tell whether a request needs a key."""
    return arguments.api_keys is not None or bool(os.environ.get(KEY_VARIABLE))


def _trust(arguments: argparse.Namespace, certified: str) -> list[str]:
    if not arguments.tls_certificate:
        return []
    if not certified:
        # Somebody else's certificate, or one of an authority that nobody named here.
        return ["-k"]
    address = address_of(arguments.host)
    resolved = [] if certified == address else [f"{certified}:{arguments.port}:{address}"]
    return [
        *(word for each in resolved for word in ("--resolve", shlex.quote(each))),
        "--cacert",
        shlex.quote(str(arguments.tls_certificate)),
    ]


def certified_host(host: str, port: int, certificate: Path) -> str:
    """Return a name for which a front end's certificate is valid; empty if curl would refuse it.

    Args:
        host: where it listens.
        port: its port.
        certificate: the file that its clients would trust.
    """
    with contextlib.suppress(OSError, ValueError):
        context = ssl.create_default_context(cafile=str(certificate))
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        # Its names are what is asked for.
        context.check_hostname = False
        address = address_of(host)
        with (
            socket.create_connection((address, port), timeout=_SECONDS) as plain,
            context.wrap_socket(plain) as connection,
        ):
            return host_in(connection.getpeercert() or {}, address)
    return ""


def host_in(certificate: Mapping[str, Any], address: str) -> str:
    """Return a host that a certificate is valid for, an address where it has that.

    Args:
        certificate: as `ssl.SSLSocket.getpeercert` returns it.
        address: the one that is preferred.
    """
    named = [(kind, value) for kind, value in certificate.get("subjectAltName", ())]
    if ("IP Address", address) in named:
        return address
    # Any name below the domain that a wildcard stands for.
    return next((value.replace("*", "api", 1) for _, value in sorted(named)), "")
