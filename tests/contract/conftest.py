"""Engines behind the real worker process, without Triton."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Harness, started


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    folder = tmp_path_factory.mktemp("contract")
    return lambda properties, own=folder: started(properties, own)


MPI = {"engine": "MPI", "option.tensor_parallel_degree": 2}
ENGINES: dict[str, dict[str, Any]] = {
    "echo": {"option.rolling_batch": "echo", "option.token_seconds": 0.005},
    "vllm": {},
    "transformers": {"option.rolling_batch": "disable"},
    # Its double, unless tools/verify_trtllm.sh runs the real one on a machine with a GPU.
    "trtllm": {"option.rolling_batch": "trtllm", "option.mpi_mode": "false"},
}
_OF_VLLM = ("option.max_model_len", "option.enforce_eager")
_OF_TRTLLM = ("option.model_id", "option.max_rolling_batch_size")
TRTLLM = Path(__file__).resolve().parents[1] / "fakes" / "trtllm"
REAL_TRTLLM = os.environ.get("LMI_BACKEND_REAL_TRTLLM")
"""Interpreter that has the real TensorRT-LLM."""


@pytest.fixture(
    scope="module",
    params=[f"{name}{mode}" for name in ENGINES for mode in ("", " mpi")],
)
def engine(
    request: pytest.FixtureRequest,
    start: Callable[..., Any],
    tiny_properties: dict[str, Any],
    trtllm_double: None,
) -> Iterator[Harness]:
    """Each engine in each mode, started once."""
    name, _, mode = request.param.partition(" ")
    base: dict[str, Any] = {}
    if name == "trtllm":
        base = {key: tiny_properties[key] for key in _OF_TRTLLM}
    elif name != "echo":
        base = {k: v for k, v in tiny_properties.items() if name == "vllm" or k not in _OF_VLLM}
    own = {k: v for k, v in ENGINES[name].items() if not mode or k != "option.mpi_mode"}
    with start(base | own | (MPI if mode else {})) as harness:
        yield harness


@pytest.fixture(scope="module")
def trtllm_double() -> Iterator[None]:
    """Workers of this interpreter find the double of TensorRT-LLM."""
    with pytest.MonkeyPatch.context() as patch:
        if REAL_TRTLLM:
            patch.setenv("PYTHON_EXECUTABLE", REAL_TRTLLM)
        else:
            patch.setenv("PYTHONPATH", str(TRTLLM))
        yield
