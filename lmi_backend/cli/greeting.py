"""What `lmi-backend serve` says once its models are ready: what serves, and how to use it."""

from __future__ import annotations

import argparse
import json
import shlex
import ssl
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from lmi_backend.cli.frontend import needs_key, own_url
from lmi_backend.cli.planning import devices_of
from lmi_backend.errors import LmiError
from lmi_backend.front_end_settings import KEY_VARIABLE, OWN_AGENT
from lmi_backend.printable import human_bytes, log, printable, say
from lmi_backend.supervisor.installation import describe, is_vulnerable
from lmi_backend.supervisor.log_relay import JSON
from lmi_backend.supervisor.ports import Ports
from lmi_backend.supervisor.triton_http import TritonHttp
from lmi_backend.threads import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from lmi_backend.plan import EnginePlan

_PROMPT: Final = "The capital of France is"
_FEW: Final = {"max_new_tokens": 20}
_SECONDS: Final = 20.0
_OWN: Final = {"User-Agent": OWN_AGENT}
_LONGEST_PATH: Final = 200


@dataclass(frozen=True)
class Greeter:
    """Tells what serves, while somebody else watches the server."""

    plans: Mapping[str, EnginePlan]
    ports: Ports
    arguments: argparse.Namespace
    is_over: Callable[[], bool]

    def start(self, missing: Collection[str]) -> None:
        """Greet in a thread; a server that dies meanwhile is not for this to notice."""
        there = {name: plan for name, plan in self.plans.items() if name not in missing}
        greeter = replace(self, plans=there)
        threading.Thread(target=greeter._greet, name="lmi-greeting", daemon=True).start()

    def _greet(self) -> None:
        try:
            version = str(TritonHttp(self.ports.url).json("/v2").get("version", ""))
            say(describe(version), "WARNING" if is_vulnerable(version) else "INFO")
            if not self.arguments.no_frontend:
                # A small model may be ready before the front end.
                url = own_url(self.arguments)
                front_end = TritonHttp(url, timeout=1, headers=_OWN, context=_unchecked())
                wait_until(lambda: front_end.is_well("/ping") or self.is_over(), _SECONDS)
        except LmiError as error:
            say(str(error), "WARNING")
        lines = [*self._summary(), *self._addresses()]
        if self.arguments.log_format == JSON:
            for line in lines:
                say(line.strip())
        else:
            log("".join(f"{line}\n" for line in lines))

    def _summary(self) -> Iterator[str]:
        for name, plan in self.plans.items():
            yield f"  {name}: {plan.engine} {printable(plan.config.model, _LONGEST_PATH)}".rstrip()
            yield (
                f"    workers  {plan.num_workers} on {devices_of(plan)}, "
                f"{plan.max_requests} requests at once"
            )
            yield f"    memory   {_memory(plan)}"
        given = self.arguments
        keys = "are needed" if not given.no_frontend and needs_key(given) else "none needed"
        log = given.log_file or (
            "all lines here" if given.verbose else "warnings and requests here; all: -v"
        )
        yield f"  keys {keys} · log {log}"

    def _addresses(self) -> Iterator[str]:
        given, names = self.arguments, list(self.plans)
        triton = f"Triton http {self.ports.http}, gRPC {self.ports.grpc}"
        if given.no_frontend:
            yield triton
            yield _curl(f"{self.ports.url}/v2/models/{names[0]}/generate", {"text_input": _PROMPT})
            return
        url = own_url(given)
        page = f" · page {url}/ · paths {url}/docs" if given.has_page else ""
        yield f"API {url}/v1{page} · {triton}"
        if given.api_keys is not None:
            yield f"Put one of the keys of {given.api_keys} into {KEY_VARIABLE}, and try:"
        named = {"model": names[0]} if len(names) > 1 else {}
        body = {**named, "inputs": _PROMPT, "parameters": _FEW}
        key = f'-H "Authorization: Bearer ${KEY_VARIABLE}"' if needs_key(given) else ""
        # On this machine; its certificate names another host.
        yield _curl(f"{url}/invocations", body, "-k" * bool(given.tls_certificate), key)


def _unchecked() -> ssl.SSLContext:
    """Return what accepts any certificate: that of the front end names another host."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _curl(url: str, body: Mapping[str, object], *options: str) -> str:
    words = ["  curl -s", *filter(None, options), shlex.quote(url)]
    return " ".join([*words, "-d", shlex.quote(json.dumps(body))])


def _memory(plan: EnginePlan) -> str:
    memory = plan.memory
    if memory is None:
        return "not known before the engine loads"
    return (
        f"{human_bytes(memory.weights)} weights and {human_bytes(memory.kv_cache)} KV cache "
        f"per device, {memory.num_tokens} tokens at once"
    )
