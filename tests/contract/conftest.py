"""Engines behind the real worker process, without Triton."""

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.plan.hardware import HostMemory
from lmi_backend.pool import spares
from tests.support.interpreter.releases import vllm_release
from tests.support.run.places import ENGINE_PYTHON, ROOT, SCRIPTS, TESTS
from tests.support.servers.harness import Harness, started


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    folder = tmp_path_factory.mktemp("contract")
    return lambda properties, own=folder: started(properties, own)


class VllmInterpreter:
    """The engine's Python with vLLM imported, which takes seconds; each script runs in a fork."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        self._process = process
        self._files = [folder / name for name in ("stdin", "stdout", "stderr")]

    def run(self, *words: str, data: bytes = b"") -> bytes:
        """Run a script with its words and standard input; return what it writes."""
        given, output, errors = self._files
        given.write_bytes(data)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([words, *map(str, self._files)]) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline().strip() == "0", errors.read_text()[-2000:]
        return output.read_bytes()


@pytest.fixture(scope="session")
def vllm_interpreter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmInterpreter]:
    """What asks vLLM itself, without an engine."""
    more = {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "0", "VLLM_LOGGING_LEVEL": "ERROR"}
    with subprocess.Popen(
        [str(ENGINE_PYTHON), str(SCRIPTS / "vllm_interpreter.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | more,
        text=True,
    ) as process:
        yield VllmInterpreter(process, tmp_path_factory.mktemp("asked"))


MPI = {"engine": "MPI", "option.tensor_parallel_degree": 2}
ENGINES: dict[str, dict[str, Any]] = {
    "echo": {"option.rolling_batch": "echo", "option.token_seconds": 0.005},
    "vllm": {"option.env": "VLLM_CPU_KVCACHE_SPACE=1"},
    "transformers": {"option.rolling_batch": "disable"},
    # Its double, unless tools/verify_trtllm.sh runs the real one on a machine with a GPU.
    "trtllm": {"option.rolling_batch": "trtllm", "option.mpi_mode": "false"},
}
# Under MPI its server reads no tools out of chats, whose streams are plain then.
TOOLS = {
    "option.enable_auto_tool_choice": "true",
    "option.tool_call_parser": "hermes",
    # The model is so small that it writes white space without end where a grammar lets it.
    "option.structured_outputs_config": '{"backend": "xgrammar", "disable_any_whitespace": true}',
}
# vLLM whose ranks mpirun starts is LMI-Dist; tests/integration/test_nodes.py says `engine=MPI`.
LMI_DIST = {
    "option.rolling_batch": "lmi-dist",
    "option.tensor_parallel_degree": 2,
    "option.env": "VLLM_CPU_KVCACHE_SPACE=1",
    "option.max_loras": 1,
}
# Its tests name it; those of all engines generate.
POOLING = {
    "option.runner": "pooling",
    "option.convert": "embed",
    "option.hf_overrides": '{"is_matryoshka": true}',
    "option.env": "VLLM_CPU_KVCACHE_SPACE=1",
    "option.enable_lora": "false",
    "option.allowed_media_domains": "images.example",
}
SPLIT = {
    "option.vllm_fast_paths": "false",
    "option.enable_auto_tool_choice": "true",
    "option.tool_call_parser": "hermes",
    "option.tensor_parallel_degree": 2,
    "option.max_loras": 1,
    "option.fully_sharded_loras": "true",
    "option.spare_workers": 1,
}
"""vLLM that starts a worker process for each of two ranks by itself, and whose streams are made by
its public ways alone; its tests name it too."""
CELLS = [f"{name}{mode}" for name in ENGINES for mode in ("", " mpi")]
"""Each engine in each mode."""
_OF_VLLM = (
    "option.max_model_len", "option.enforce_eager", "option.num_gpu_blocks_override"
)  # fmt: skip
_OF_TRTLLM = ("option.model_id", "option.max_rolling_batch_size")
FAKES = TESTS / "fakes"
REAL_TRTLLM = os.environ.get("LMI_BACKEND_REAL_TRTLLM")
"""Interpreter that has the real TensorRT-LLM."""
TRTLLM = {"option.pythonExecutable": REAL_TRTLLM} if REAL_TRTLLM else {}


class Kept:
    """The engine that serves tests of several modules, one at a time."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._running: dict[str, Harness] = {}

    def take(self, name: str, engine: AbstractContextManager[Harness]) -> Harness:
        """Return the engine of that name; start it if it does not run yet."""
        if name not in self._running:
            self.close()
            self._running[name] = self._stack.enter_context(engine)
        return self._running[name]

    def fast_paths(self) -> dict[str, str]:
        """Return each fast path of the engine that runs and why it is off; empty if it is on."""
        workers = [w for each in self._running.values() for w in each.service.snapshot().workers]
        return {name: reason for w in workers for name, reason, _ in w.stats.fast_paths}

    def close(self) -> None:
        self._running.clear()
        self._stack.close()


_kept = Kept()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Close an engine after the last of its tests: what it leaves undone may fill a core.

    `tools/compat.py` reads of the report which fast paths it had.
    """
    if found := _kept.fast_paths():
        item.user_properties.append(("fast_paths", json.dumps(found)))
    if nextitem is None or _engine_of(nextitem) != _engine_of(item):
        _kept.close()


def _engine_of(item: pytest.Item) -> str:
    return str(item.callspec.params.get("engine", "")) if hasattr(item, "callspec") else ""


def without(*engines: str) -> pytest.MarkDecorator:
    """Run a test on each engine but those that lack what it is about."""
    cells = [each for each in CELLS if each.partition(" ")[0] not in engines]
    return pytest.mark.parametrize("engine", cells, indirect=True)


@pytest.fixture(scope="module", params=CELLS)
def engine(
    request: pytest.FixtureRequest,
    start: Callable[..., Any],
    tiny_properties: dict[str, Any],
    doubles: None,
) -> Harness:
    """Each engine in each mode, started once for all modules."""
    if request.param == "pooling":
        return _kept.take(request.param, start(tiny_properties | POOLING))
    if request.param == "vllm split":
        return _kept.take(request.param, _with_spare(start(tiny_properties | SPLIT)))
    name, _, mode = request.param.partition(" ")
    base: dict[str, Any] = {}
    if name == "trtllm":
        base = {key: tiny_properties[key] for key in _OF_TRTLLM} | TRTLLM
    elif name != "echo":
        base = {k: v for k, v in tiny_properties.items() if name == "vllm" or k not in _OF_VLLM}
    own = {k: v for k, v in ENGINES[name].items() if not mode or k != "option.mpi_mode"}
    if request.param == "vllm":
        own |= TOOLS | ({"option.enable_scale_out": "true"} if vllm_release() >= (0, 32) else {})
    ranks = LMI_DIST if name == "vllm" else MPI
    return _kept.take(request.param, start(base | own | (ranks if mode else {})))


@contextlib.contextmanager
def _with_spare(starting: AbstractContextManager[Harness]) -> Iterator[Harness]:
    """Start an engine whose spare waits before it loads the model.

    So it is on a GPU, and where a second model does not fit; the chaos suite has one that loads.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spares, "host_memory", lambda: HostMemory(0, spares.LEAST_MEMORY))
        with starting as engine:
            yield engine


@pytest.fixture(scope="module")
def doubles() -> Iterator[None]:
    """Workers find the doubles of what cannot be had here."""
    with pytest.MonkeyPatch.context() as patch:
        if REAL_TRTLLM:
            # That interpreter may lack msgspec, which workers need.
            patch.setenv("PYTHONPATH", os.environ.get("LMI_BACKEND_REAL_TRTLLM_TOOLS", ""))
        else:
            patch.setenv("PYTHONPATH", str(FAKES / "trtllm"))
        yield
