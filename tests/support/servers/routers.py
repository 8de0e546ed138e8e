"""Routers of others before servers of ours: real programs, set as docs/fleet.md says."""

import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from debian_package import PackageError, unpacked

from tests.support.run.places import CLIENTS_PYTHON, ROOT
from tests.support.run.ports import free_ports
from tests.support.run.waiting import HANG_SECONDS, wait_for

SESSION = "x-session-id"
"""By which requests stay with a server, where the router can."""
_SILENT = 20
"""Seconds without a byte after which a server is given up; ours says something every 15."""
DEBIAN = ROOT / ".cache" / "debian"
MODEL = "echo"


@dataclass(frozen=True)
class Running:
    url: str
    log: Path
    process: subprocess.Popen[bytes]


@dataclass(frozen=True)
class Router:
    name: str
    version: Callable[[], str]
    command: Callable[[Path, int, Sequence[int], bool], list[str]]
    """Writes its configuration: folder, its port, the servers' ports, whether sessions stay."""
    environment: Callable[[], dict[str, str]] = dict
    is_sticky: bool = True
    """Whether it can keep a session on a server."""
    keeps_streams_whole: bool = True
    """Whether it asks another server when one refuses or has gone."""

    @contextlib.contextmanager
    def running(
        self, folder: Path, servers: Sequence[int], *, is_sticky: bool = False
    ) -> Iterator[Running]:
        folder.mkdir(parents=True, exist_ok=True)
        (port,) = free_ports(1)
        words = self.command(folder, port, servers, is_sticky)
        log = folder / "log"
        with log.open("wb") as output:
            environment = os.environ | self.environment()
            process = subprocess.Popen(words, stdout=output, stderr=output, env=environment)
        try:
            wait_for(lambda: _answers(process, port, log))
            yield Running(f"http://127.0.0.1:{port}", log, process)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(process: subprocess.Popen[bytes], port: int, log: Path) -> bool:
    assert process.poll() is None, log.read_text("utf-8", "replace")[-4000:]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_SECONDS)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        body = {"model": MODEL, "prompt": "a", "max_tokens": 1}
        headers = {"content-type": "application/json"}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        return connection.getresponse().status == 200
    return False


def version_of(words: list[str], pattern: str, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env=os.environ | (environment or {})
    )
    found = re.search(pattern, done.stdout + done.stderr)
    assert found, done
    return found[1]


ENVOY_BINARY = Path(sys.executable).with_name("envoy")
_ENVOY = """\
static_resources:
  listeners:
  - name: clients
    address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": {of}.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: clients
          stream_idle_timeout: 0s
          preserve_external_request_id: true
          http_filters:
{filters}
          - name: envoy.filters.http.router
            typed_config: {{"@type": {of}.filters.http.router.v3.Router}}
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {{prefix: /}}
                route:
                  cluster: servers
                  timeout: 0s
                  hash_policy: {hash}
                  retry_policy:
                    # `reset`: the server has gone before it has said anything; a prompt may be
                    # asked twice.
                    retry_on: connect-failure,reset,retriable-status-codes
                    retriable_status_codes: [503]
                    num_retries: 3
                    per_try_idle_timeout: {silent}s
                    retry_back_off: {{base_interval: 0.025s}}
                    host_selection_retry_max_attempts: 5
                    retry_host_predicate:
                    - name: envoy.retry_host_predicates.previous_hosts
                      typed_config:
                        "@type": {of}.retry.host.previous_hosts.v3.PreviousHostsPredicate
  clusters:
  - name: servers
    connect_timeout: 1s
    {balancing}
    load_assignment: {{cluster_name: servers, endpoints: [{{lb_endpoints: [{servers}]}}]}}
    health_checks:
    - {{timeout: 1s, interval: 1s, no_traffic_interval: 1s, unhealthy_threshold: 1,
       healthy_threshold: 1, http_health_check: {{path: /ping}}}}
    # By default three requests may be tried again at a time.
    circuit_breakers:
      thresholds:
      - {{max_connections: 100000, max_requests: 100000, max_pending_requests: 100000,
         max_retries: 1000}}
    # Servers that refuse are not asked, however many do.
    common_lb_config: {{healthy_panic_threshold: {{value: 0}}}}
{clusters}
"""
ENVOY_TYPES = "type.googleapis.com/envoy.extensions"


def envoy_command(
    folder: Path, port: int, servers: Sequence[int], is_sticky: bool, **more: str
) -> list[str]:
    """Write Envoy's configuration; return its command.

    Args:
        more: `filters` before its router, `clusters`, and how it is `balancing`.
    """
    text = _ENVOY.format(
        of=ENVOY_TYPES,
        port=port,
        silent=_SILENT,
        hash=f"[{{header: {{header_name: {SESSION}}}}}]" if is_sticky else "[]",
        servers=", ".join(map(envoy_endpoint, servers)),
        **{"filters": "", "clusters": ""}
        | {"balancing": f"lb_policy: {'RING_HASH' if is_sticky else 'LEAST_REQUEST'}"}
        | more,
    )
    path = folder / "envoy.yaml"
    path.write_text(text, "utf-8")
    return [str(ENVOY_BINARY), "-c", str(path), "--disable-hot-restart", "--concurrency", "1"]


def envoy_endpoint(port: int) -> str:
    return (
        f"{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}}}"
    )


_HAPROXY = """\
global
  # A request must fit, to be sent once more.
  tune.bufsize {bufsize}
defaults
  mode http
  timeout connect 1s
  timeout client 1h
  timeout server {silent}s
  timeout http-keep-alive 60s
  timeout check 1s
  retries 3
  retry-on conn-failure empty-response response-timeout 503
  option redispatch 1
frontend clients
  bind 127.0.0.1:{port}
  default_backend servers
backend servers
  balance {balance}
  option httpchk GET /ping
  default-server check inter 1s fall 1 rise 1
{servers}
"""


def packages(*names: str) -> Callable[[], dict[str, str]]:
    """Have packages unpacked; return the environment in which their programs run."""

    def environment() -> dict[str, str]:
        try:
            found = [unpacked(name, DEBIAN) for name in names]
        except PackageError as error:
            pytest.skip(str(error))
        folders = [each for one in found for each in (one / "usr" / "lib").glob("*-gnu")]
        folders += [one / "usr" / "lib" / "varnish" for one in found]
        return {"LD_LIBRARY_PATH": os.pathsep.join(map(str, folders)), "HOME": str(DEBIAN)}

    return environment


HAPROXY_PACKAGES = packages(
    "haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1"
)
HAPROXY_BINARY = DEBIAN / "haproxy" / "usr" / "sbin" / "haproxy"


def haproxy_version() -> str:
    return version_of([str(HAPROXY_BINARY), "-v"], r"version (\d+\.\d+\.\d+)", HAPROXY_PACKAGES())


def envoy_version() -> str:
    return version_of([str(ENVOY_BINARY), "--version"], r"/(\d+\.\d+\.\d+)")


def _haproxy(folder: Path, port: int, servers: Sequence[int], is_sticky: bool) -> list[str]:
    lines = [f"  server s{at} 127.0.0.1:{each}" for at, each in enumerate(servers)]
    balance = f"hdr({SESSION})\n  hash-type consistent" if is_sticky else "leastconn"
    text = _HAPROXY.format(
        port=port, silent=_SILENT, balance=balance, servers="\n".join(lines), bufsize=262144
    )
    path = folder / "haproxy.cfg"
    path.write_text(text, "utf-8")
    return [str(HAPROXY_BINARY), "-db", "-f", str(path)]


def _litellm(folder: Path, port: int, servers: Sequence[int], is_sticky: bool) -> list[str]:
    assert not is_sticky
    models = [
        {
            "model_name": MODEL,
            "litellm_params": {
                "model": f"text-completion-openai/{MODEL}",
                "api_base": f"http://127.0.0.1:{each}/v1",
                "api_key": "none",
            },
        }
        for each in servers
    ]
    config = {
        "model_list": models,
        "router_settings": {
            "routing_strategy": "least-busy",
            "num_retries": 3,
            "retry_after": 0,
            "allowed_fails": 0,
            "cooldown_time": 2,
            "stream_timeout": _SILENT,
        },
        "litellm_settings": {"telemetry": False, "drop_params": False},
    }
    path = folder / "litellm.yaml"
    # JSON is YAML.
    path.write_text(json.dumps(config, indent=1), "utf-8")
    program = CLIENTS_PYTHON.with_name("litellm")
    return [str(program), "--config", str(path), "--host", "127.0.0.1", "--port", str(port)]


def _vllm_router(folder: Path, port: int, servers: Sequence[int], is_sticky: bool) -> list[str]:
    del folder
    words = [str(CLIENTS_PYTHON.with_name("vllm-router")), "--worker-urls"]
    words += [f"http://127.0.0.1:{each}" for each in servers]
    (metrics,) = free_ports(1)
    words += ["--port", str(port), "--prometheus-port", str(metrics)]
    words += ["--prometheus-host", "127.0.0.1"]
    words += ["--policy", "consistent_hash" if is_sticky else "round_robin"]
    words += ["--health-check-endpoint", "/ping", "--health-check-interval-secs", "1"]
    words += ["--health-check-timeout-secs", "1", "--health-failure-threshold", "1"]
    words += ["--health-success-threshold", "1", "--cb-timeout-duration-secs", "2"]
    words += ["--cb-success-threshold", "1", "--retry-max-retries", "4"]
    return [*words, "--retry-initial-backoff-ms", "25", "--retry-max-backoff-ms", "500"]


def _package(name: str) -> Callable[[], str]:
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    return lambda: version_of([str(CLIENTS_PYTHON), "-c", code], r"(\S+)")


ROUTERS = (
    Router("Envoy", envoy_version, envoy_command),
    Router("HAProxy", haproxy_version, _haproxy, HAPROXY_PACKAGES),
    Router(
        "LiteLLM proxy",
        _package("litellm"),
        _litellm,
        lambda: {
            # It asks the network for prices, and will not start without a key of its own.
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        },
        is_sticky=False,
        keeps_streams_whole=False,
    ),
    Router("vLLM's router", _package("vllm-router"), _vllm_router),
)
