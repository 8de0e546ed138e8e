"""What is measured: each target is started alone, asked, and stopped."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from benchmark import plain_triton, rust_front_end, triton_vllm
from benchmark.http_client import (
    EMBEDDING,
    SENT,
    Body,
    HttpClient,
    chat_body,
    embedding_body,
    triton_body,
)
from benchmark.measured import Answer, Asks, Measured
from benchmark.perf_analyzer import Analyzer
from benchmark.servers import PACE, PROMPT, Running, chat_asks, free_port, process, triton_asks

ROOT = Path(__file__).resolve().parent.parent.parent
_MODEL = ROOT / "examples" / "tiny" / "llama"
_ENGINE_PYTHON = ROOT / ".venv-engine" / "bin" / "python"
_STOP_SECONDS = 30
_SPARE_SECONDS = 60
_LMI_KINDS = {
    "tritonserver": "tritonserver",
    "triton_python_backend_stub": "stub",
    "lmi_backend.worker.main": "worker front end",
    "lmi_backend.frontend.main": "front end",
}
_VLLM = {
    "option.rolling_batch": "vllm",
    "option.model_id": _MODEL,
    "option.pythonExecutable": _ENGINE_PYTHON,
    "option.max_model_len": 1024,
    "option.enforce_eager": "true",
    "option.dtype": "fp32",
    "option.max_rolling_batch_size": 256,
}
_GENERATE = "/v2/models/bench/generate_stream"

Target = Callable[[Analyzer], AbstractContextManager[Running]]
"""Starts something that can be asked, and stops it at the end."""


@contextmanager
def raw_engine(_: Analyzer) -> Iterator[Running]:
    """Start vLLM's engine in one process, without a server."""
    words = [str(_ENGINE_PYTHON), str(ROOT / "tools" / "benchmark" / "raw_engine.py"), str(_MODEL)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with process(lambda _: words, **pipes) as started:
        yield Running(_RawAsks(started), started.pid, {"raw_engine": "front end"})
        # It ends with its input, and its engine with it; a signal would leave that behind.
        started.communicate(timeout=_STOP_SECONDS)


class _RawAsks:
    def __init__(self, started: subprocess.Popen[str]) -> None:
        self._process = started

    def run(self, tokens: int, concurrency: int, requests: int) -> Measured:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError
        asked = {"tokens": tokens, "concurrency": concurrency, "requests": requests}
        self._process.stdin.write(json.dumps(asked | {"prompt": PROMPT}) + "\n")
        self._process.stdin.flush()
        return Measured.of([Answer(*each) for each in json.loads(self._process.stdout.readline())])


class _Addresses(NamedTuple):
    """Of Triton's HTTP and gRPC ports, and of the front end."""

    http: str
    grpc: str
    port: str


def _lmi_target(
    asks: Callable[[Analyzer, _Addresses], Asks], more: Mapping[str, Any], base: dict[str, Any]
) -> Target:
    @contextmanager
    def running(analyzer: Analyzer) -> Iterator[Running]:
        with _lmi({**base, **more}) as (pid, addresses):
            yield Running(asks(analyzer, addresses), pid, _LMI_KINDS)

    return running


def lmi_grpc(
    more: Mapping[str, Any], *, base: dict[str, Any] = _VLLM, stream: bool = True
) -> Target:
    """Return lmi-backend asked on Triton's gRPC port."""
    return _lmi_target(
        lambda analyzer, at: triton_asks(analyzer, at.grpc, "bench", stream=stream), more, base
    )


def lmi_http(more: dict[str, Any]) -> Target:
    """Return lmi-backend asked on Triton's HTTP port, in the words of Triton's vLLM backend."""
    body = triton_body(PROMPT)
    return _lmi_target(lambda _, at: HttpClient(f"http://{at.http}{_GENERATE}", body), more, _VLLM)


def lmi_port(path: str, body: Body, more: dict[str, Any], event: bytes = SENT) -> Target:
    """Return lmi-backend asked on its own HTTP port."""
    return _lmi_target(
        lambda _, at: HttpClient(f"http://{at.port}{path}", body, event), more, _VLLM
    )


def lmi_embeddings() -> Target:
    """Return lmi-backend asked for embeddings on its own HTTP port."""
    pooling = {"option.runner": "pooling", "option.convert": "embed"}
    return lmi_port("/v1/embeddings", embedding_body("bench"), pooling, EMBEDDING)


def lmi_chat(more: dict[str, Any], asked: Mapping[str, Any] = MappingProxyType({})) -> Target:
    """Return lmi-backend asked for OpenAI's chats on its own HTTP port."""
    return lmi_port("/v1/chat/completions", chat_body(PROMPT, "bench", asked), more)


def echo(more: Mapping[str, Any]) -> Target:
    """Return lmi-backend with the engine that repeats the prompt: all that is not the engine."""
    base = {"option.rolling_batch": "echo", "option.max_running": 4096}
    return lmi_grpc(more, base=base)


@contextmanager
def _lmi(properties: dict[str, Any]) -> Iterator[tuple[int, _Addresses]]:
    """Start lmi-backend; give its process id and addresses."""
    http, grpc, metrics, port = (free_port() for _ in range(4))

    def command(folder: Path) -> list[str]:
        model = folder / "bench"
        model.mkdir()
        lines = "".join(f"{name}={value}\n" for name, value in properties.items())
        (model / "serving.properties").write_text(lines, encoding="utf-8")
        serve = [str(ROOT / ".venv" / "bin" / "lmi-backend"), "serve", str(model)]
        ports = ["--http-port", str(http), "--grpc-port", str(grpc), "--port", str(port)]
        return [*serve, *ports, "--metrics-port", str(metrics)]

    # Triton opens its port when all models are loaded; the front end has its own before that.
    ready = f"http://127.0.0.1:{port}/ping", f"http://127.0.0.1:{http}/v2/health/ready"
    with process(command, *ready) as started:
        if properties["option.rolling_batch"] == "vllm":
            _await_spare(f"http://127.0.0.1:{metrics}/metrics")
        yield started.pid, _Addresses(*(f"127.0.0.1:{each}" for each in (http, grpc, port)))


def _await_spare(url: str) -> None:
    """Wait until the worker has its spare, whose start takes seconds of CPU once.

    Where memory is left for none, there is none after this wait either.
    """
    end = time.monotonic() + _SPARE_SECONDS
    while time.monotonic() < end:
        lines: list[str] = []
        # Triton opens this port last.
        with contextlib.suppress(urllib.error.URLError), urllib.request.urlopen(url) as page:  # noqa: S310
            lines = page.read().decode().splitlines()
        if any(line.startswith("lmi_worker_spare{") and line.endswith(" 1") for line in lines):
            return
        time.sleep(0.2)


def vllm_server(*more: str, asked: Mapping[str, Any] = MappingProxyType({})) -> Target:
    """Return vLLM's own OpenAI server, with some arguments of its own, asked for chats."""
    return _vllm_server(lambda address: chat_asks(address, "bench", asked), *more)


def vllm_embeddings() -> Target:
    """Return vLLM's own server asked for embeddings."""
    body = embedding_body("bench")
    return _vllm_server(
        lambda address: HttpClient(f"http://{address}/v1/embeddings", body, EMBEDDING),
        *("--runner", "pooling", "--convert", "embed"),
    )


def vllm_rust_server(*more: str) -> Target:
    """Return the same server with its Rust front end, asked for chats."""

    @contextmanager
    def running(_: Analyzer) -> Iterator[Running]:
        words = rust_front_end.words(ROOT / ".cache")
        with _served(words, *more) as (pid, address):
            yield Running(chat_asks(address, "bench"), pid, rust_front_end.KINDS)

    return running


def _vllm_server(asks: Callable[[str], Asks], *more: str) -> Target:

    @contextmanager
    def running(_: Analyzer) -> Iterator[Running]:
        words = [str(_ENGINE_PYTHON), "-m", "vllm.entrypoints.openai.api_server"]
        with _served(words, *more) as (pid, address):
            yield Running(asks(address), pid, {"api_server": "server front end"})

    return running


@contextmanager
def _served(server: list[str], *more: str) -> Iterator[tuple[int, str]]:
    """Start one of vLLM's servers; give its process id and address."""
    port = free_port()
    model = ["--model", str(_MODEL), "--served-model-name", "bench", "--enforce-eager"]
    sizes = ["--max-model-len", "1024", "--max-num-seqs", "256", "--dtype", "float32"]
    words = [*server, *model, *sizes, "--host", "127.0.0.1", "--port", str(port), *more]
    with process(lambda _: words, f"http://127.0.0.1:{port}/health") as started:
        yield started.pid, f"127.0.0.1:{port}"


@contextmanager
def vllm_backend(_: Analyzer) -> Iterator[Running]:
    """Start Triton's vLLM backend, asked on Triton's HTTP port."""
    arguments = {"model": str(_MODEL), "max_model_len": 1024, "max_num_seqs": 256}
    arguments |= {"enforce_eager": True, "dtype": "float32"}

    def command(folder: Path) -> list[str]:
        return triton_vllm.prepare(folder, arguments, _ENGINE_PYTHON, PACE)

    with _plain_triton(command) as running:
        yield running


@contextmanager
def constant_responses(_: Analyzer) -> Iterator[Running]:
    """Start a model that only sends responses, asked on Triton's HTTP port."""

    def command(folder: Path) -> list[str]:
        plain_triton.write_model(folder, plain_triton.CONSTANT, plain_triton.CONSTANT_CONFIG)
        return plain_triton.words(folder, {})

    with _plain_triton(command) as running:
        yield running


@contextmanager
def _plain_triton(command: Callable[[Path], list[str]]) -> Iterator[Running]:
    http, grpc, metrics = (free_port() for _ in range(3))
    ports = [f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}"]
    with process(
        lambda folder: [*command(folder), *ports, "--http-address=127.0.0.1"],
        f"http://127.0.0.1:{http}/v2/health/ready",
    ) as started:
        asks = HttpClient(f"http://127.0.0.1:{http}{_GENERATE}", triton_body(PROMPT))
        yield Running(asks, started.pid, _LMI_KINDS)


def peer(protocol: str, address: str, model: str) -> Target:
    """Return a server that somebody else has started."""

    @contextmanager
    def running(analyzer: Analyzer) -> Iterator[Running]:
        yield Running(_PEERS[protocol](analyzer, address, model))

    return running


_PEERS: Mapping[str, Callable[[Analyzer, str, str], Asks]] = {
    "triton": triton_asks,
    "openai": lambda _, address, model: chat_asks(address, model),
}
PROTOCOLS = tuple(_PEERS)
