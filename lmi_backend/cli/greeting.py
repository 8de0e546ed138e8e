"""What `lmi-backend serve` says once its models are ready: what serves, and how to use it."""

from __future__ import annotations

import argparse
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from lmi_backend.cli.first_request import (
    PROMPT,
    base_url,
    certified_host,
    curl_command,
    needs_key,
)
from lmi_backend.cli.generate import stream
from lmi_backend.cli.standard_streams import show
from lmi_backend.errors import LmiError
from lmi_backend.front_end_settings import KEY_VARIABLE
from lmi_backend.printable import printable, say
from lmi_backend.supervisor.log_lines import JSON
from lmi_backend.supervisor.ports import Ports, wait_until_well
from lmi_backend.supervisor.triton_http import TritonHttp
from lmi_backend.supervisor.triton_release import describe, is_vulnerable
from lmi_backend.units import human_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from lmi_backend.plan import EnginePlan

_FRONT_END_SECONDS: Final = 20.0
_LONGEST_PATH: Final = 200


@dataclass(frozen=True)
class Greeter:
    """Tells what serves, while somebody else watches the server.

    Args:
        plans: of the models, by name.
        ports: Triton's own.
        arguments: of `serve`.
        is_over: whether the server is to stop.
    """

    plans: Mapping[str, EnginePlan]
    ports: Ports
    arguments: argparse.Namespace
    is_over: Callable[[], bool]

    def start(self, missing: Collection[str]) -> None:
        """Greet in a thread; a server that dies meanwhile is not for this to notice.

        Args:
            missing: models that do not serve.
        """
        there = {name: plan for name, plan in self.plans.items() if name not in missing}
        greeter = replace(self, plans=there)
        threading.Thread(target=greeter._greet, name="lmi-greeting", daemon=True).start()

    def _greet(self) -> None:
        self._warn_of_release()
        certified = self._wait_for_front_end()
        if self.arguments.example is not None:
            self._show_example()
        lines = [*self._summary(), *self._addresses(certified)]
        if self.arguments.log_format == JSON:
            for line in lines:
                say(line.strip())
        else:
            show("".join(f"{line}\n" for line in lines))

    def _warn_of_release(self) -> None:
        try:
            version = str(TritonHttp(self.ports.url).json("/v2").get("version", ""))
        except LmiError as error:
            say(str(error), "WARNING")
        else:
            say(describe(version), "WARNING" if is_vulnerable(version) else "INFO")

    def _show_example(self) -> None:
        prompt = self.arguments.example
        show(f"\n{prompt}")
        try:
            server = TritonHttp(self.ports.url)
            for text in stream(server, next(iter(self.plans)), prompt, {"max_new_tokens": 20}):
                show(text)
        except LmiError as error:
            say(str(error), "WARNING")
        show("\n")

    def _summary(self) -> Iterator[str]:
        """Yield what serves: each model, its workers and its memory."""
        for name, plan in self.plans.items():
            yield f"  {name}: {plan.engine} {printable(plan.config.model, _LONGEST_PATH)}".rstrip()
            yield f"    workers  {_workers(plan)}"
            yield f"    memory   {_memory(plan)}"
        keys = "are needed" if self._has_front_end and needs_key(self.arguments) else "none needed"
        log = self.arguments.log_file or (
            "all lines here" if self.arguments.verbose else "warnings and requests here; all: -v"
        )
        yield f"  keys {keys} · log {log}"

    def _addresses(self, certified: str) -> Iterator[str]:
        triton = f"Triton http {self.ports.http}, gRPC {self.ports.grpc}"
        if not self._has_front_end:
            yield triton
            url = f"{self.ports.url}/v2/models/{next(iter(self.plans))}/generate"
            yield f'  curl -s {url} -d \'{{"text_input": "{PROMPT}"}}\''
            return
        url = base_url(self.arguments, certified)
        page = f" · page {url}/" if self.arguments.has_page else ""
        yield f"API {url}/v1{page} · {triton}"
        if self.arguments.api_keys is not None:
            yield f"Put one of the keys of {self.arguments.api_keys} into {KEY_VARIABLE}, and try:"
        prompt = self.arguments.example or PROMPT
        yield f"  {curl_command(self.arguments, list(self.plans), prompt, certified)}"

    @property
    def _has_front_end(self) -> bool:
        return not self.arguments.no_frontend

    def _wait_for_front_end(self) -> str:
        """Wait until it takes requests; return a host of its certificate."""
        if not self._has_front_end:
            return ""
        given = self.arguments
        # A small model may be ready before the front end.
        wait_until_well(
            given.host,
            given.port,
            _FRONT_END_SECONDS,
            has_tls=bool(given.tls_certificate),
            is_over=self.is_over,
        )
        if not given.tls_certificate:
            return ""
        return certified_host(given.host, given.port, given.tls_certificate)


def _workers(plan: EnginePlan) -> str:
    groups = ["+".join(group) for group in plan.parallel.device_groups if group]
    devices = f"GPU {', '.join(groups)}" if groups else "the CPU"
    return f"{plan.num_workers} on {devices}, {plan.max_requests} requests at once"


def _memory(plan: EnginePlan) -> str:
    memory = plan.memory
    if memory is None:
        return "not known before the engine loads"
    return (
        f"{human_bytes(memory.weights)} weights and {human_bytes(memory.kv_cache)} KV cache "
        f"per device, {memory.num_tokens} tokens at once"
    )
