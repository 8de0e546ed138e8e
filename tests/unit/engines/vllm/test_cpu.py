"""What vLLM does otherwise on a CPU; tests/contract has it with vLLM's own classes."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm import cpu, fast_paths, names
from lmi_backend.ipc.environment import GROUP_VARIABLE


class Generator:
    """Draws one number after the other; it has no offset, as on a CPU."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def draw(self) -> int:
        self.state += 1
        return self.state

    def get_state(self) -> int:
        return self.state

    def set_state(self, state: int) -> None:
        self.state = state


class Runner:
    """vLLM's runner, as far as it goes."""

    def __init__(self) -> None:
        self.input_batch: Any = SimpleNamespace(generators={})

    def step(self, *cut: int) -> list[int]:
        """Draw for each row; return what is drawn for those whose prompt is not cut."""
        self._update_states()
        drawn = {row: each.draw() for row, each in self.input_batch.generators.items()}
        self._bookkeeping_sync(cut)
        return [value for row, value in drawn.items() if row not in cut]

    def _update_states(self) -> None: ...

    def _bookkeeping_sync(self, cut: tuple[int, ...]) -> None:
        for row in cut:
            generator = self.input_batch.generators[row]
            generator.set_offset(generator.get_offset() - 4)


class CPUWorker:
    """vLLM's worker, as far as it goes."""

    made: Any = Runner
    """The class of its runner."""
    vllm_config = SimpleNamespace(lora_config=None)

    def __init__(self, distributed_init_method: str = "tcp://127.0.0.1:5") -> None:
        self.distributed_init_method = distributed_init_method

    def init_device(self) -> None:
        self.model_runner = self.made()


class PunicaWrapperCPU:
    """vLLM's, as far as it goes."""

    add_shrink = add_expand = add_lora_embedding = add_lora_logits = sampler_indices = None


@contextmanager
def _variables(*_: int) -> Iterator[None]:
    yield


def _manager(configure: Any) -> Any:
    return lambda _: SimpleNamespace(configure_omp_envs=configure)


class CpuPlatform:
    """vLLM's, as far as it goes."""

    def is_cpu(self) -> bool:
        return True

    @classmethod
    def get_punica_wrapper(cls) -> str:
        return "vllm.lora.punica_wrapper.punica_cpu.PunicaWrapperCPU"


@pytest.fixture(autouse=True)
def vllm(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Names of a vLLM on a CPU."""
    monkeypatch.setattr(fast_paths, "_off", {})
    known = vars(names)
    monkeypatch.setitem(known, "current_platform", CpuPlatform())
    monkeypatch.setitem(known, "UniProcExecutor", type("Executor", (), {}))
    monkeypatch.setitem(known, "OMPProcessManager", _manager(_variables))
    monkeypatch.setitem(known, "CPUWorker", CPUWorker)
    monkeypatch.setitem(known, "PunicaWrapperCPU", PunicaWrapperCPU)
    cpu.__getattr__.cache_clear()
    return known


def _config() -> Any:
    parallel = SimpleNamespace(distributed_executor_backend=None, world_size_across_dp=1)
    return SimpleNamespace(parallel_config=parallel)


def test_the_core_gets_the_executor_of_one_process(vllm: dict[str, Any]) -> None:
    config = _config()
    with cpu.compute_alone(config, chosen=None):
        assert config.parallel_config.distributed_executor_backend is vllm["UniProcExecutor"]
    assert fast_paths.is_on("single_process")


def test_another_inside_leaves_vllms_own_process(vllm: dict[str, Any]) -> None:
    vllm["OMPProcessManager"] = _manager(lambda *, new: new)
    config = _config()
    with cpu.compute_alone(config, chosen=None):
        assert config.parallel_config.distributed_executor_backend is None
    assert not fast_paths.is_on("single_process")


@pytest.mark.parametrize("is_cpu", [True, False])
def test_workers_on_a_cpu_are_of_another_class(
    monkeypatch: pytest.MonkeyPatch, *, is_cpu: bool
) -> None:
    monkeypatch.setattr(CpuPlatform, "is_cpu", lambda _: is_cpu)
    assert cpu.worker_class() == ("lmi_backend.engines.vllm.cpu.Worker" if is_cpu else "auto")


def _runner(*generators: Generator) -> Any:
    worker = cpu.Worker()
    worker.init_device()
    worker.model_runner.input_batch.generators = dict(enumerate(generators))
    return worker.model_runner


def test_a_prompt_of_several_steps_draws_as_one_of_a_single_step() -> None:
    first, second = Generator(10), Generator(20)
    served = _runner(first, second)
    assert served.step(0, 1) == []
    assert served.step(1) == [11]
    assert served.step() == [12, 21]
    assert served.input_batch.generators == {0: first, 1: second}


def test_a_step_without_seeds_is_vllms_own() -> None:
    assert _runner().step() == []


def test_a_runner_of_another_kind_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Second:
        def _update_states(self) -> None: ...

    monkeypatch.setattr(CPUWorker, "made", Second)
    assert type(_runner_of_worker()) is Second


def _runner_of_worker() -> Any:
    worker = cpu.Worker()
    worker.init_device()
    return worker.model_runner


def test_ranks_share_memory_with_their_own_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GROUP_VARIABLE, "lmi-x-0")
    # vLLM 0.11 to 0.33 name the memory by this.
    named = cpu.Worker("env://").distributed_init_method.split(":")[-1]
    assert named == f"lmi-x-0-{socket.gethostname()}"
    assert cpu.Worker().distributed_init_method == "tcp://127.0.0.1:5"


def test_with_lora_a_worker_applies_it_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CPUWorker, "vllm_config", SimpleNamespace(lora_config="any"))
    cpu.Worker().init_device()
    assert names.current_platform.get_punica_wrapper() == f"{cpu.__name__}.PunicaWrapper"
    assert issubclass(cpu.PunicaWrapper, PunicaWrapperCPU)
