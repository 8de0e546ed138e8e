"""What is measured: each target is started, asked through perf_analyzer, and stopped."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

PROMPT = "Count to one hundred:"
_START_SECONDS = 300
_KV_CACHE_GIB = "1"
_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": _KV_CACHE_GIB, "LC_ALL": "C.UTF-8"}


class Target:
    """A server, and how perf_analyzer reaches it."""

    name = ""
    ready_path = ""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.port = _free_port()
        self.model = root / ".cache" / "tiny" / "llama"
        self.engine_python = root / ".venv-engine" / "bin" / "python"

    def command(self, folder: Path) -> list[str]:
        """Return the words that start it."""
        raise NotImplementedError

    def words(self) -> list[str]:
        """Return perf_analyzer's words for it."""
        raise NotImplementedError

    def data(self, tokens: int) -> object:
        """Return perf_analyzer's requests, for answers of so many tokens."""
        raise NotImplementedError

    def kind(self, words: list[str]) -> str:
        """Return the class of a process by its command line; empty for one that is not counted."""
        line = " ".join(words)
        if "VLLM::" in line:
            return "engine"
        return next((kind for part, kind in self.kinds.items() if part in line), "")

    kinds: ClassVar[Mapping[str, str]] = {}
    """Part of a command line to class of process; the first that fits counts."""

    @contextmanager
    def started(self) -> Iterator[int]:
        """Start it; give its process id once it answers; stop it at the end."""
        with tempfile.TemporaryDirectory() as folder, Path(folder, "log").open("wb") as log:
            process = subprocess.Popen(
                self.command(Path(folder)),
                stdout=log,
                stderr=log,
                env=os.environ | _ENVIRONMENT,
                start_new_session=True,
            )
            try:
                self._wait(process, Path(folder, "log"))
                yield process.pid
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()

    def _wait(self, process: subprocess.Popen[bytes], log: Path) -> None:
        end = time.monotonic() + _START_SECONDS
        url = f"http://127.0.0.1:{self.port}{self.ready_path}"
        while process.poll() is None and time.monotonic() < end:
            try:
                with urllib.request.urlopen(url, timeout=5):
                    return
            except OSError:
                time.sleep(0.2)
        tail = log.read_text(encoding="utf-8", errors="replace")[-3000:]
        message = f"{self.name} did not start:\n{tail}"
        raise RuntimeError(message)


class LmiBackend(Target):
    """This project: tritonserver, stub, worker, vLLM."""

    name = "lmi-backend"
    ready_path = "/v2/models/bench/ready"
    kinds: ClassVar = {
        "tritonserver": "tritonserver",
        "triton_python_backend_stub": "stub",
        "lmi_backend.workers.main": "worker front end",
    }

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._grpc = _free_port()

    def command(self, folder: Path) -> list[str]:
        """See `Target`."""
        model = folder / "bench"
        model.mkdir()
        properties = {
            "option.rolling_batch": "vllm",
            "option.model_id": self.model,
            "option.pythonExecutable": self.engine_python,
            "option.max_model_len": 1024,
            "option.enforce_eager": "true",
            "option.dtype": "fp32",
        }
        lines = "".join(f"{name}={value}\n" for name, value in properties.items())
        (model / "serving.properties").write_text(lines, encoding="utf-8")
        serve = [str(self.root / ".venv" / "bin" / "lmi-backend"), "serve", str(model)]
        ports = ["--http-port", str(self.port), "--grpc-port", str(self._grpc)]
        return [*serve, *ports, "--metrics-port", str(_free_port())]

    def words(self) -> list[str]:
        """See `Target`."""
        return ["-m", "bench", "-u", f"127.0.0.1:{self._grpc}", "-i", "grpc", "--streaming"]

    def data(self, tokens: int) -> object:
        """See `Target`."""
        sampling = {"max_tokens": tokens, "ignore_eos": True, "temperature": 0}
        request = {
            "text_input": [PROMPT],
            "exclude_input_in_output": [True],
            "stream": [True],
            "sampling_parameters": [json.dumps(sampling)],
        }
        return {"data": [request]}


class VllmServer(Target):
    """vLLM's own OpenAI server."""

    name = "vLLM's server"
    ready_path = "/health"
    kinds: ClassVar = {"api_server": "server front end"}

    def command(self, folder: Path) -> list[str]:
        """See `Target`."""
        server = [str(self.engine_python), "-m", "vllm.entrypoints.openai.api_server"]
        model = ["--model", str(self.model), "--served-model-name", "bench", "--enforce-eager"]
        sizes = ["--max-model-len", "1024", "--max-num-seqs", "256", "--dtype", "float32"]
        return [*server, *model, *sizes, "--host", "127.0.0.1", "--port", str(self.port)]

    def words(self) -> list[str]:
        """See `Target`."""
        # It streams because the body says so; the option is for Triton only.
        openai = ["--service-kind", "openai", "--endpoint", "v1/chat/completions"]
        return ["-m", "bench", "-u", f"127.0.0.1:{self.port}", *openai]

    def data(self, tokens: int) -> object:
        """See `Target`."""
        payload: dict[str, Any] = {
            "model": "bench",
            "messages": [{"role": "user", "content": PROMPT}],
            "stream": True,
            "max_tokens": tokens,
            "ignore_eos": True,
            "temperature": 0,
        }
        return {"data": [{"payload": [payload]}]}


TARGETS: dict[str, type[Target]] = {"lmi": LmiBackend, "vllm": VllmServer}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
