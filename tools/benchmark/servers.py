"""Start a process, wait until it answers, stop it; and the ways to ask it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from benchmark.http_client import HttpClient, chat_body
from benchmark.measured import Asks, Measured
from benchmark.perf_analyzer import Analyzer

PROMPT = "Count to one hundred:"
_START_SECONDS = 300
_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "LC_ALL": "C.UTF-8"}
PORTS: Final = range(20_000, 30_000)
"""Below those that the system gives to connections."""
PACE: Final = Path(__file__).resolve().parent / "pace"


class UnavailableError(Exception):
    """A target cannot be had on this machine; the text says why."""


@dataclass(frozen=True)
class Running:
    """A target that can be asked."""

    asks: Asks
    pid: int = 0
    """Its process, whose children count too; 0 where its CPU cannot be seen."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Part of a command line to class of process; the first that fits counts."""

    def kind(self, words: list[str]) -> str:
        """Return the class of a process by its command line; empty for one that is not counted."""
        line = " ".join(words)
        if "VLLM::" in line:
            return "engine"
        return next((kind for part, kind in self.kinds.items() if part in line), "")


@dataclass(frozen=True)
class AnalyzerAsks:
    analyzer: Analyzer
    words: list[str]
    data: Callable[[int], object]
    """Its requests, for answers of so many tokens."""

    def run(self, tokens: int, concurrency: int, requests: int) -> Measured:
        return self.analyzer.run(self.words, self.data(tokens), concurrency, requests)


def triton_asks(analyzer: Analyzer, address: str, model: str, *, stream: bool = True) -> Asks:
    """Return who asks a model on Triton, in the words of Triton's vLLM backend, over gRPC."""

    def data(tokens: int) -> object:
        sampling = {"max_tokens": tokens, "ignore_eos": True, "temperature": 0}
        request = {
            "text_input": [PROMPT],
            "exclude_input_in_output": [True],
            "stream": [stream],
            "sampling_parameters": [json.dumps(sampling)],
        }
        return {"data": [request]}

    # Also one response needs a stream: the model may send many.
    return AnalyzerAsks(analyzer, ["-m", model, "-u", address, "-i", "grpc", "--streaming"], data)


def chat_asks(address: str, model: str, more: Mapping[str, Any] = MappingProxyType({})) -> Asks:
    """Return who asks an OpenAI server for chats; `more` is what they ask besides."""
    return HttpClient(f"http://{address}/v1/chat/completions", chat_body(PROMPT, model, more))


def keep_pace(step_seconds: float) -> None:
    """Let the vLLM of every target wait so long in each step, as one waits for a GPU."""
    paths = [str(PACE), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.environ["LMI_BENCH_STEP_SECONDS"] = str(step_seconds)


@contextmanager
def process(
    command: Callable[[Path], list[str]], *ready: str, **popen: Any
) -> Iterator[subprocess.Popen[str]]:
    """Start a server; give it once it answers; stop it at the end.

    Args:
        command: makes the words from a folder it may use.
        ready: URLs that all answer when it is ready; none for one that says so itself.
        popen: for `Popen`.
    """
    with tempfile.TemporaryDirectory() as folder, Path(folder, "log").open("wb") as log:
        started = subprocess.Popen(
            command(Path(folder)),
            stderr=log,
            env=os.environ | _ENVIRONMENT,
            start_new_session=True,
            text=True,
            **{"stdout": log} | popen,
        )
        try:
            if not ready and started.stdout is not None:
                started.stdout.readline()
            for url in ready:
                _wait(started, url, Path(folder, "log"))
            yield started
        finally:
            started.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.wait(30)
            # What it left behind would run beside the next one.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()


def _wait(started: subprocess.Popen[str], url: str, log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while started.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310  its own server
                return
        except OSError:
            time.sleep(0.02)
    tail = log.read_text(encoding="utf-8", errors="replace")[-3000:]
    message = f"{started.args!r} did not start:\n{tail}"
    raise RuntimeError(message)


def free_port() -> int:
    """Return a port that nobody has, of those that no connection gets by itself.

    A server may load for a minute before it listens, and clients connect by the thousand.
    """
    while True:
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
