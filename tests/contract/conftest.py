"""Engines behind the real worker process, without Triton."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness import Harness, started


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    folder = tmp_path_factory.mktemp("contract")
    return lambda properties: started(properties, folder)


MPI = {"engine": "MPI", "option.tensor_parallel_degree": 2}
ENGINES: dict[str, dict[str, Any]] = {
    "echo": {"option.rolling_batch": "echo", "option.token_seconds": 0.005},
    "vllm": {},
    "transformers": {"option.rolling_batch": "disable"},
}
_FOR_VLLM_ONLY = ("option.max_model_len", "option.enforce_eager")


@pytest.fixture(
    scope="module",
    params=["echo", "echo mpi", "vllm", "vllm mpi", "transformers", "transformers mpi"],
)
def engine(
    request: pytest.FixtureRequest, start: Callable[..., Any], tiny_properties: dict[str, Any]
) -> Iterator[Harness]:
    """Each engine in each mode, started once."""
    name, _, mode = request.param.partition(" ")
    base = {} if name == "echo" else dict(tiny_properties)
    if name == "transformers":
        base = {key: base[key] for key in base if key not in _FOR_VLLM_ONLY}
    with start(base | ENGINES[name] | (MPI if mode else {})) as harness:
        yield harness
