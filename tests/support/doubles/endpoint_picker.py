"""What the endpoint picker of the Gateway API makes of a server's metrics, and a small one of ours.

A port of the rules of llm-d-router (pkg/epp/framework/plugins/datalayer, August 2026) and of the
text parser that it uses: which texts are refused, and which of several series counts. The picker is
an external processor for the real Envoy; unlike theirs it has three rules in place of scorers.
"""

import contextlib
import http.client
import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as ext_proc_grpc

from tests.support.run.waiting import HANG_SECONDS
from tests.support.servers.routers import ENVOY_TYPES, Router, envoy_command, envoy_endpoint

SCRAPE_SECONDS = 0.05
"""Theirs by default."""
DESTINATION = "x-gateway-destination-endpoint"
_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SAMPLE = re.compile(rf"({_NAME})(?:{{(.*)}})?[ \t]+(\S+)(?:[ \t]+(-?\d+))?[ \t]*")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
_COMMENT = re.compile(rf"#[ \t]+(HELP|TYPE)[ \t]+({_NAME})(?:[ \t]+(.*))?")
_READ = ("counter", "gauge")
"""Kinds whose values count; others are 0."""


class RefusedError(Exception):
    """The text is none of Prometheus, and the whole scrape is lost."""


@dataclass
class Family:
    kind: str = "untyped"
    series: list[tuple[dict[str, str], float, int]] = field(default_factory=list)
    """Labels, value and timestamp of each."""


def parse(text: str) -> dict[str, Family]:
    """Return the families of a text.

    Raises:
        RefusedError: a line is none, or a name is declared twice or too late.
    """
    families: dict[str, Family] = {}
    declared: set[tuple[str, str]] = set()
    for line in text.splitlines():
        if comment := _COMMENT.fullmatch(line):
            word, name, rest = comment.groups()
            family = families.setdefault(name, Family())
            if (word, name) in declared or (word == "TYPE" and family.series):
                raise RefusedError(f"second {word} line for metric name {name!r}, or a late one")
            declared.add((word, name))
            family.kind = rest if word == "TYPE" else family.kind
        elif line.strip() and not line.startswith("#"):
            if (match := _SAMPLE.fullmatch(line)) is None:
                raise RefusedError(f"no series: {line!r}")
            name, inside, value, timestamp = match.groups()
            one = dict(_LABEL.findall(inside or "")), float(value), int(timestamp or 0)
            families.setdefault(name, Family()).series.append(one)
    return families


@dataclass(frozen=True)
class Seen:
    """A server, as the picker's default mapping for vLLM reads it."""

    waiting: int
    running: int
    kv_usage: float
    running_adapters: frozenset[str] = frozenset()
    waiting_adapters: frozenset[str] = frozenset()

    @classmethod
    def of(cls, text: str) -> "Seen":
        """Read a scrape.

        Raises:
            RefusedError: it cannot be parsed.
            KeyError: one of the three that must be there is not.
        """
        families = parse(text)
        lora = _newest(families.get("vllm:lora_requests_info"))
        return cls(
            waiting=int(_value(families, "vllm:num_requests_waiting")),
            running=int(_value(families, "vllm:num_requests_running")),
            kv_usage=_value(families, "vllm:kv_cache_usage_perc"),
            running_adapters=_names(lora.get("running_lora_adapters", "")),
            waiting_adapters=_names(lora.get("waiting_lora_adapters", "")),
        )


def _value(families: dict[str, Family], name: str) -> float:
    """Return the value of the series with the newest timestamp, else of the first: never a sum."""
    family = families[name]
    if not family.series:
        raise KeyError(name)
    _, value, _ = max(family.series, key=lambda each: each[2])
    return value if family.kind in _READ else 0.0


def _newest(family: Family | None) -> dict[str, str]:
    """Return the labels whose value, a time, is the newest."""
    if family is None or not family.series:
        return {}
    return max(family.series, key=lambda each: each[1])[0]


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


class Picker(ext_proc_grpc.ExternalProcessorServicer):  # type: ignore[misc]
    """Looks at servers twenty times a second, and says where each request goes.

    Args:
        ports: of the servers' front ends on this machine.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self.seen: dict[int, Seen] = {}
        self.refused: list[str] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._watch, args=(port,)) for port in ports]

    @contextlib.contextmanager
    def serving(self) -> Iterator[int]:
        """Look and answer until the block ends; give the port."""
        server = grpc.server(ThreadPoolExecutor(16))
        ext_proc_grpc.add_ExternalProcessorServicer_to_server(self, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        for thread in self._threads:
            thread.start()
        try:
            yield port
        finally:
            self._over.set()
            for thread in self._threads:
                thread.join()
            server.stop(1).wait()

    def pick(self, model: str) -> int:
        """Return the port of a server: one that has the adapter, then who has the least to do."""

        def key(port: int) -> tuple[bool, int, float, int]:
            seen = self.seen[port]
            has = model in seen.running_adapters | seen.waiting_adapters
            return not has, seen.waiting, round(seen.kv_usage, 2), seen.running

        return min(self.seen, key=key)

    def Process(self, request_iterator: Any, context: Any) -> Iterator[Any]:
        """Answer Envoy for one request: headers first, then the whole body."""
        del context
        for message in request_iterator:
            if message.HasField("request_body"):
                yield self._sent_on(message.request_body.body)
            else:
                yield ext_proc.ProcessingResponse(request_headers=ext_proc.HeadersResponse())

    def _sent_on(self, body: bytes) -> Any:
        port = self.pick(str(json.loads(body).get("model", "")))
        value = base_pb2.HeaderValue(key=DESTINATION, raw_value=f"127.0.0.1:{port}".encode())
        mutation = ext_proc.HeaderMutation(set_headers=[base_pb2.HeaderValueOption(header=value)])
        common = ext_proc.CommonResponse(header_mutation=mutation)
        return ext_proc.ProcessingResponse(request_body=ext_proc.BodyResponse(response=common))

    def _watch(self, port: int) -> None:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_SECONDS)
        with contextlib.closing(client):
            while not self._over.wait(SCRAPE_SECONDS):
                client.request("GET", "/metrics")
                text = client.getresponse().read().decode()
                try:
                    self.seen[port] = Seen.of(text)
                except (RefusedError, KeyError) as error:
                    self.refused.append(f"{time.monotonic():.1f} {port}: {error}")


_ASKS = f"""\
          - name: envoy.filters.http.ext_proc
            typed_config:
              "@type": {ENVOY_TYPES}.filters.http.ext_proc.v3.ExternalProcessor
              grpc_service: {{envoy_grpc: {{cluster_name: picker}}}}
              message_timeout: 2s
              processing_mode: {{request_header_mode: SEND, request_body_mode: BUFFERED,
                                response_header_mode: SKIP}}"""
_OVERRIDES = f"""\
load_balancing_policy:
      policies:
      - typed_extension_config:
          name: envoy.load_balancing_policies.override_host
          typed_config:
            "@type": {ENVOY_TYPES}.load_balancing_policies.override_host.v3.OverrideHost
            override_host_sources: [{{header: {DESTINATION}}}]
            fallback_policy:
              policies:
              - typed_extension_config:
                  name: envoy.load_balancing_policies.least_request
                  typed_config:
                    "@type": {ENVOY_TYPES}.load_balancing_policies.least_request.v3.LeastRequest"""
_OF_PICKER = f"""\
  - name: picker
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": {ENVOY_TYPES}.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{http2_protocol_options: {{}}}}
    load_assignment: {{cluster_name: picker, endpoints: [{{lb_endpoints: [HERE]}}]}}"""


def picking_router(picker: int) -> Router:
    """Return an Envoy that asks a picker, at some port, for each request."""
    cluster = _OF_PICKER.replace("HERE", envoy_endpoint(picker))
    asks = {"filters": _ASKS, "balancing": _OVERRIDES, "clusters": cluster}
    return Router("Envoy with a picker", lambda: "", partial(envoy_command, **asks))
