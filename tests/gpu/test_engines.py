"""Each engine on real GPUs: the same questions, the planned memory, ranks with a device each.

`make test-gpu` runs this; elsewhere it says why it does not. GPU_PYTHON names the interpreter that
has CUDA builds of the engines; by default the one workers use.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.interpreter.compiling import compiling
from tests.support.servers.harness import started

PYTHON = os.environ.get("GPU_PYTHON") or os.environ.get("PYTHON_EXECUTABLE", "python3")


def _gpus() -> int:
    if shutil.which("nvidia-smi") is None:
        return 0
    done = subprocess.run(["nvidia-smi", "-L"], check=False, capture_output=True, text=True)
    return done.stdout.count("GPU ")


def _has_cuda() -> bool:
    code = "import torch, sys; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([PYTHON, "-c", code], check=False, capture_output=True).returncode == 0


CASES = {
    "vllm": {"option.rolling_batch": "vllm"},
    "vllm, 2 devices": {"option.rolling_batch": "vllm", "option.tensor_parallel_degree": 2},
    "vllm, 2 ranks": {"option.rolling_batch": "lmi-dist", "option.tensor_parallel_degree": 2},
    "vllm, 2 workers": {"option.rolling_batch": "vllm", "option.tensor_parallel_degree": 1},
    "transformers": {"option.rolling_batch": "disable", "option.tensor_parallel_degree": 1},
    "transformers, 2 ranks": {
        "engine": "MPI",
        "option.rolling_batch": "disable",
        "option.tensor_parallel_degree": 2,
    },
}


@pytest.fixture(params=CASES)
def engine(
    request: pytest.FixtureRequest, tiny_properties: dict[str, Any], tmp_path: Path
) -> Iterator[Any]:
    if not (gpus := _gpus()):
        pytest.skip("no GPU: nvidia-smi is not there or lists none")
    if not _has_cuda():
        pytest.skip(f"{PYTHON} (GPU_PYTHON) has no torch that sees a GPU")
    if "2" in request.param and gpus == 1:
        pytest.skip("one GPU; this needs two")
    names = ("option.model_id", "option.max_rolling_batch_size")
    base = {name: tiny_properties[name] for name in names}
    workers = {"maxWorkers": 2 if "workers" in request.param else 1}
    own = {"option.pythonExecutable": PYTHON, "option.dtype": "fp32", **workers}
    with compiling(), started(base | own | CASES[request.param], tmp_path) as harness:
        yield harness


def test_every_question_is_answered(engine: Any, questions: dict[str, str]) -> None:
    streams = {prompt: engine.start(prompt) for prompt in questions}
    assert {prompt: stream.wait().text for prompt, stream in streams.items()} == questions
    assert len(engine.service.snapshot().workers) == engine.plan.parallel.workers


def test_the_kv_cache_is_about_as_large_as_planned(engine: Any) -> None:
    reported = re.search(r"KV cache size: ([\d,]+) tokens", "\n".join(engine.output))
    if engine.plan.memory is None or reported is None:
        pytest.skip("the size of the cache is not planned, or not reported")
    tokens = int(reported[1].replace(",", ""))
    # The plan guesses what a step needs; a third is far, a factor would be wrong.
    assert engine.plan.memory.num_tokens == pytest.approx(tokens, rel=0.33)
