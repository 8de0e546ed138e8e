"""Run `lmi-backend serve` as a user would, and talk to it."""

import contextlib
import http.client
import json
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from lmi_backend.repository.restricted_apis import HEADER
from lmi_backend.supervisor.front_end import PROGRAM as FRONT_END
from lmi_backend.supervisor.installation import find_server, release_name
from lmi_backend.supervisor.processes import GUARD, lives
from tests.support.harm.doors import OF_GROUPS, doors
from tests.support.run.ports import free_ports, listens
from tests.support.run.spending import ENGINES, SERVERS, started
from tests.support.run.waiting import HANG_SECONDS, wait_for

LMI = (sys.executable, "-m", "lmi_backend.cli.main")
SETTLING = 3
"""Requests that `Served.settled` has refused."""


def lmi(*words: object) -> subprocess.CompletedProcess[str]:
    command = [*LMI, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def write_properties(folder: Path, properties: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{name}={value}\n" for name, value in properties.items()]
    (folder / "serving.properties").write_text("".join(lines), encoding="utf-8")
    return folder


def answer_of(
    address: str,
    path: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    method: str = "",
    tls: ssl.SSLContext | None = None,
) -> tuple[int, dict[str, str], bytes]:
    """Ask HOST:PORT, by default with GET or, with a body, POST; return status, headers and body."""
    made = partial(http.client.HTTPSConnection, context=tls) if tls else http.client.HTTPConnection
    with contextlib.closing(made(address, timeout=HANG_SECONDS)) as connection:
        data = body if isinstance(body, bytes | None) else json.dumps(body)
        word = method or ("GET" if body is None else "POST")
        connection.request(word, path, data, dict(headers or {}))
        response = connection.getresponse()
        named = {name.lower(): value for name, value in response.getheaders()}
        return response.status, named, response.read()


@dataclass
class Served:
    """A running `lmi-backend serve`."""

    process: subprocess.Popen[str]
    http_port: int
    grpc_port: int
    metrics_port: int
    log_file: Path
    port: int = 0
    """Of the front end."""
    sagemaker_port: int = 0
    tls: ssl.SSLContext | None = None
    """With which the front end is asked, where it speaks TLS."""
    greeting: str = ""
    """What it said until it was ready."""

    @property
    def control_key(self) -> Path:
        return self.log_file.with_name("control.key")

    def log(self, since: int = 0) -> str:
        """Return the log from a byte on. What a test waits for may not be there yet: `logged`."""
        return self.log_file.read_bytes()[since:].decode("utf-8", "replace")

    def logged(self, pattern: str, since: int = 0) -> re.Match[str]:
        """Return the match of a pattern in the log, once it is there.

        A line travels through a pipe and the supervisor: it comes after the state that it tells.
        """
        found = wait_for(lambda: re.search(pattern, self.log(since)))
        assert found is not None
        return found

    def log_end(self) -> str:
        """Return the last of what tritonserver and its models logged, without single requests."""
        if not self.log_file.is_file():
            return "no log of Triton"
        lines = self.log().splitlines(keepends=True)
        kept = (
            line
            for line in lines
            if " frontend: POST " not in line and "request model=" not in line
        )
        return "".join(kept)[-4000:]

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    @property
    def front_end(self) -> str:
        return f"127.0.0.1:{self.port}"

    def ask(
        self,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        method: str = "",
    ) -> tuple[int, dict[str, str], bytes]:
        """Return the front end's answer: status, headers and body."""
        return answer_of(self.front_end, path, body, headers, method, self.tls)

    @property
    def http(self) -> str:
        return f"127.0.0.1:{self.http_port}"

    def post(
        self, path: str, body: Any, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Return status and JSON answer of Triton's port."""
        status, _, text = answer_of(self.http, path, body, headers)
        return status, json.loads(text) if text else None

    def control(self, path: str) -> tuple[int, Any]:
        """Load or unload a model, of a server that was started with a --control-key."""
        key = self.control_key.read_text(encoding="ascii").strip()
        return self.post(f"/v2/repository/models/{path}", {}, {HEADER: key})

    def generate(self, model: str, body: Any) -> tuple[int, Any]:
        return self.post(f"/v2/models/{model}/generate", body)

    @property
    def release(self) -> str:
        """The server's release, such as 24.10."""
        return release_name(json.loads(answer_of(self.http, "/v2")[2])["version"])

    def is_ready(self, model: str) -> bool:
        return answer_of(self.http, f"/v2/models/{model}/ready")[0] == 200

    def is_up(self) -> bool:
        return listens(self.http_port)

    @contextlib.contextmanager
    def events(self, model: str, body: Any) -> Iterator[Iterator[dict[str, Any]]]:
        """Open `/generate_stream`; leaving the block closes the connection."""
        connection = http.client.HTTPConnection(self.http, timeout=HANG_SECONDS)
        with contextlib.closing(connection):
            connection.request("POST", f"/v2/models/{model}/generate_stream", json.dumps(body))
            response = connection.getresponse()
            yield (json.loads(line[5:]) for line in response if line.startswith(b"data:"))
            # http.client keeps the socket open while the response lives.
            response.close()

    def metrics(self) -> str:
        return answer_of(f"127.0.0.1:{self.metrics_port}", "/metrics")[2].decode()

    def metric(self, name: str, model: str, worker: str = "", outcome: str = "") -> float:
        """Return the sum of a metric over its other labels, or of one worker, or outcome."""
        pattern = rf'^{name}{{([^}}]*model="{model}"[^}}]*)}} (\S+)$'
        found = re.findall(pattern, self.metrics(), re.MULTILINE)
        label = f'worker="{worker}"' if worker else f'outcome="{outcome}"' if outcome else ""
        return sum(float(value) for labels, value in found if label in labels)

    def settled(self, name: str, model: str) -> float:
        """Return a metric that counts all that has ended, and the requests refused here.

        Once a round of the publisher counts a request, it counts what ended earlier. Of two rounds
        one has the histograms, and one may have begun too early.
        """

        def refused() -> float:
            return self.metric("lmi_requests_total", model, outcome="invalid_arg")

        for _ in range(SETTLING):
            before = refused()
            assert self.generate(model, {"text_input": "", "max_tokens": -1})[0] == 400
            wait_for(lambda: refused() > before)  # noqa: B023
        return self.metric(name, model)

    def workers(self, model: str) -> list[psutil.Process]:
        """Return the worker processes of a model, found by the log line that names their pid."""
        pids = re.findall(rf"worker {model}/\d+ is ready after \S+ s, pid (\d+)", self.log())
        found: list[psutil.Process] = []
        # One that outlives its stub is ready again.
        for pid in dict.fromkeys(pids):
            with contextlib.suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(int(pid)))
        return [each for each in found if lives(each)]

    def family(self, *, with_front_end: bool = True) -> list[psutil.Process]:
        """Return every process below `serve` but the one that waits for its end."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        family = [each for each in below if _name_of(each) not in ("", GUARD)]
        return family if with_front_end else [each for each in family if not _is_front_end(each)]

    def run_folder(self) -> Path:
        (server,) = self.named("tritonserver")
        return Path(server.environ()["LMI_BACKEND_RUN_DIR"])

    def named(self, name: str) -> list[psutil.Process]:
        """Return the processes of the family in whose name this is."""
        return [each for each in self.family() if name in _name_of(each)]

    def front_ends(self) -> list[psutil.Process]:
        return [each for each in self.family() if _is_front_end(each)]

    def stop(self) -> int:
        """Send SIGTERM and return the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(HANG_SECONDS)


@contextlib.contextmanager
def serve(
    folders: list[Path],
    tmp_path: Path,
    *options: str,
    ports: Sequence[int] = (),
    has_log_file: bool = True,
) -> Iterator[Served]:
    """Serve LMI folders until the block ends; Triton's three ports come first, ours last.

    Without a log file the log comes with what `serve` itself says, and is read until it is ready.
    """
    ports = ports or free_ports(4)
    log_file = tmp_path / "triton.log"
    command = [*LMI, "serve", *map(str, folders)]
    names = ("--http-port", "--grpc-port", "--metrics-port", "--port")
    for name, port in zip(names, ports, strict=True):
        command += [name, str(port)]
    if has_log_file:
        command += ["--log-file", str(log_file)]
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    served = Served(process, *ports[:3], log_file=log_file, port=ports[3])
    started[SERVERS] += 1
    started[ENGINES] += sum(map(_has_engine, folders))
    try:
        _wait_until_ready(served)
        yield served
        _check_doors(served)
    finally:
        served.stop()
        if process.stdout is not None:
            process.stdout.close()


@contextlib.contextmanager
def front_end(folder: Path, *options: str, port: int = 0, **more: Any) -> Iterator[Served]:
    """Run `lmi-backend frontend` until the block ends, once it listens.

    Args:
        more: arguments of subprocess.
    """
    port = port or free_ports(1)[0]
    words = [*LMI, "frontend", f"--port={port}", *options]
    process = subprocess.Popen(words, text=True, **{"stderr": subprocess.DEVNULL} | more)
    with process:
        front = Served(process, 0, 0, 0, folder, port)
        try:
            wait_for(lambda: listens(port))
            yield front
        finally:
            assert front.stop() == 0


def _wait_until_ready(served: Served) -> None:
    assert served.process.stdout is not None
    lines = []
    for line in served.process.stdout:
        lines.append(line)
        if line.startswith("  curl"):
            served.greeting = "".join(lines)
            return
    raise AssertionError(f"serve ended:\n{''.join(lines)}\n{served.log_end()}")


def _check_doors(served: Served) -> None:
    """Fail if anything but the ports that were chosen is open to other users of the machine."""
    if served.process.poll() is not None:
        return
    ports = (served.http_port, served.grpc_port, served.metrics_port, served.port)
    found = doors(served.family())
    kept = OF_GROUPS if any(OF_GROUPS[0] in door for door in found) else ()
    chosen = (*(f":{port} of" for port in ports), *kept)
    found = [door for door in found if not any(each in door for each in chosen)]
    assert not found, found


def _has_engine(folder: Path) -> bool:
    """Tell whether its model has an engine other than echo."""
    properties = folder / "serving.properties"
    return properties.is_file() and "=echo" not in properties.read_text("utf-8")


def _is_front_end(process: psutil.Process) -> bool:
    try:
        return FRONT_END in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def _name_of(process: psutil.Process) -> str:
    """Return its name; nothing if it has ended meanwhile."""
    try:
        name: str = process.name()
    except psutil.NoSuchProcess:
        return ""
    return name


@contextlib.contextmanager
def tritonserver(
    repository: Path, tmp_path: Path, *arguments: str, python: str = sys.executable
) -> Iterator[Served]:
    """Run a server that keeps going when a model cannot be loaded; stubs run with `python`."""
    server = find_server(tmp_path)
    environment = server.environment(os.environ)
    ports = free_ports(4)
    log_file = tmp_path / "triton.log"
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [
                server.binary,
                f"--backend-directory={server.backends}",
                f"--model-repository={repository}",
                f"--http-port={ports[0]}",
                f"--grpc-port={ports[1]}",
                f"--metrics-port={ports[2]}",
                "--allow-sagemaker=true",
                f"--sagemaker-port={ports[3]}",
                "--exit-on-error=false",
                "--exit-timeout-secs=5",
                *arguments,
            ],
            env=environment
            | {
                "PATH": f"{Path(python).parent}{os.pathsep}{environment['PATH']}",
                "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "lmi_echo_raw",
            },
            stdout=log,
            stderr=log,
            text=True,
        )
    served = Served(process, *ports[:3], log_file, sagemaker_port=ports[3])
    started[SERVERS] += 1
    try:
        # The last of the ports to open; it is logged a moment before.
        wait_for(lambda: listens(ports[2]))
        yield served
    finally:
        served.stop()
