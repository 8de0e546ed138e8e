"""What `lmi-backend serve` says once its models are ready: what serves, and how to ask it."""

from __future__ import annotations

import argparse
import json
import threading
from typing import TYPE_CHECKING

from lmi_backend.cli.generate import stream
from lmi_backend.cli.standard_streams import show
from lmi_backend.errors import LmiError
from lmi_backend.printable import say
from lmi_backend.supervisor.front_end import missing_libraries
from lmi_backend.supervisor.ports import Ports, url_of, wait_until_well
from lmi_backend.supervisor.triton_http import TritonHttp
from lmi_backend.supervisor.triton_release import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_FRONT_END_SECONDS = 20.0


class Greeting(threading.Thread):
    """Asks the server and writes to standard output, while somebody else watches the server.

    Args:
        names: of the models.
        ports: Triton's own.
        arguments: of `serve`.
        is_over: whether the server is to stop.
    """

    def __init__(
        self,
        names: Sequence[str],
        ports: Ports,
        arguments: argparse.Namespace,
        is_over: Callable[[], bool],
    ) -> None:
        super().__init__(name="lmi-greeting", daemon=True)
        self._names, self._ports, self._is_over = names, ports, is_over
        self._arguments = arguments

    def run(self) -> None:
        """Greet; a server that dies meanwhile is not for this to notice."""
        server, example = TritonHttp(self._ports.url), self._arguments.example
        prompt = example or "The capital of France is"
        try:
            say(describe(str(server.json("/v2").get("version", ""))))
            if example is not None:
                show(f"\n{prompt}")
                for text in stream(server, self._names[0], prompt, {"max_new_tokens": 20}):
                    show(text)
        except LmiError as error:
            say(str(error))
        body = json.dumps({"inputs": prompt, "parameters": {"max_new_tokens": 20}})
        show(f"\nTry next:\n  curl -s {self._url()} -d '{body}'\n")

    def _url(self) -> str:
        arguments = self._arguments
        if arguments.no_frontend or missing_libraries():
            return f"{self._ports.url}/v2/models/{self._names[0]}/generate"
        # A small model may be ready before the front end.
        certificate, host, port = arguments.tls_certificate, arguments.host, arguments.port
        wait_until_well(
            host, port, _FRONT_END_SECONDS, has_tls=bool(certificate), is_over=self._is_over
        )
        option, scheme = (f"--cacert {certificate} ", "https") if certificate else ("", "http")
        return f"{option}{url_of(host, port, scheme)}/invocations"
