"""A core that computes in its own process, where vLLM's inside lets it."""

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm import cpu, fast_paths, names


@contextmanager
def _variables(*_: int) -> Iterator[None]:
    yield


@contextmanager
def _raises(*_: int) -> Iterator[None]:
    if _:
        raise RuntimeError("no OpenMP")
    yield


def _manager(configure: Any) -> Any:
    return lambda _: SimpleNamespace(configure_omp_envs=configure)


@pytest.fixture(autouse=True)
def vllm(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Names of a vLLM on a CPU."""
    monkeypatch.setattr(fast_paths, "_off", {})
    known = vars(names)
    monkeypatch.setitem(known, "current_platform", SimpleNamespace(is_cpu=lambda: True))
    monkeypatch.setitem(known, "UniProcExecutor", type("Executor", (), {}))
    monkeypatch.setitem(known, "OMPProcessManager", _manager(_variables))
    return known


def _config() -> Any:
    parallel = SimpleNamespace(distributed_executor_backend=None, world_size_across_dp=1)
    return SimpleNamespace(parallel_config=parallel)


def test_the_core_gets_the_executor_of_one_process(vllm: dict[str, Any]) -> None:
    config = _config()
    with cpu.compute_alone(config, chosen=None):
        assert config.parallel_config.distributed_executor_backend is vllm["UniProcExecutor"]
    assert fast_paths.is_on("single_process")


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("OMPProcessManager", _manager(lambda *_: (None, None))),
        ("OMPProcessManager", _manager(_raises)),
        ("OMPProcessManager", _manager(lambda *, new: new)),
        ("UniProcExecutor", lambda *_: None),
    ],
)
def test_another_inside_leaves_vllms_own_process(
    vllm: dict[str, Any], name: str, changed: Any
) -> None:
    vllm[name] = changed
    config = _config()
    with cpu.compute_alone(config, chosen=None):
        assert config.parallel_config.distributed_executor_backend is None
    assert not fast_paths.is_on("single_process")


class _Frozen:
    world_size_across_dp = 1

    @property
    def distributed_executor_backend(self) -> None:
        return None


def test_a_config_that_cannot_be_changed_leaves_it_too() -> None:
    with cpu.compute_alone(SimpleNamespace(parallel_config=_Frozen()), chosen=None):
        assert not fast_paths.is_on("single_process")


@pytest.mark.parametrize(
    ("starter", "parent", "is_on"),
    [("5", 5, True), ("5", 6, False), (None, 6, True), ("5", None, True)],
)
def test_a_process_of_the_cores_own_says_that_there_is_one(
    monkeypatch: pytest.MonkeyPatch, starter: str | None, parent: int | None, *, is_on: bool
) -> None:
    started = None if parent is None else SimpleNamespace(pid=parent)
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: started)
    if starter is not None:
        monkeypatch.setenv("LMI_BACKEND_SINGLE_PROCESS", starter)
    cpu.note_other_processes()
    assert fast_paths.is_on("single_process") is is_on


def test_a_core_knows_who_has_started_it() -> None:
    with cpu.compute_alone(_config(), chosen=None):
        assert os.environ["LMI_BACKEND_SINGLE_PROCESS"] == str(os.getpid())
    assert "LMI_BACKEND_SINGLE_PROCESS" not in os.environ
