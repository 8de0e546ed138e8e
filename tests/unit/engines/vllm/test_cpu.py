"""What vLLM does otherwise on a CPU, besides what tests/contract shows with its own classes."""

import socket
from types import SimpleNamespace

import pytest

from lmi_backend.engines.vllm import cpu, fast_paths, names
from lmi_backend.ipc.environment import GROUP_VARIABLE


class CPUWorker:
    """vLLM's worker, as far as it goes."""

    vllm_config = SimpleNamespace(lora_config=None)

    def __init__(self, distributed_init_method: str = "tcp://127.0.0.1:5") -> None:
        self.distributed_init_method = distributed_init_method

    def init_device(self) -> None:
        # One that has other methods than the first runner.
        self.model_runner = SimpleNamespace()


class PunicaWrapperCPU:
    """vLLM's, as far as it goes."""

    add_shrink = add_expand = add_lora_embedding = add_lora_logits = sampler_indices = None


class CpuPlatform:
    """vLLM's, as far as it goes."""

    def is_cpu(self) -> bool:
        return True

    @classmethod
    def get_punica_wrapper(cls) -> str:
        return "vllm.lora.punica_wrapper.punica_cpu.PunicaWrapperCPU"


@pytest.fixture(autouse=True)
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of a vLLM on a CPU."""
    monkeypatch.setattr(fast_paths, "_off", {})
    known = vars(names)
    monkeypatch.setitem(known, "current_platform", CpuPlatform())
    monkeypatch.setitem(known, "CPUWorker", CPUWorker)
    monkeypatch.setitem(known, "PunicaWrapperCPU", PunicaWrapperCPU)
    cpu.__getattr__.cache_clear()


def test_another_inside_leaves_vllms_own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = SimpleNamespace(configure_omp_envs=lambda *, new: new)
    monkeypatch.setitem(vars(names), "OMPProcessManager", lambda _: manager)
    parallel = SimpleNamespace(distributed_executor_backend=None, world_size_across_dp=1)
    config = SimpleNamespace(parallel_config=parallel)
    with cpu.compute_alone(config, chosen=None):
        assert config.parallel_config.distributed_executor_backend is None
    assert not fast_paths.is_on("single_process")


@pytest.mark.parametrize("is_cpu", [True, False])
def test_workers_on_a_cpu_are_of_another_class(
    monkeypatch: pytest.MonkeyPatch, *, is_cpu: bool
) -> None:
    monkeypatch.setattr(CpuPlatform, "is_cpu", lambda _: is_cpu)
    assert cpu.worker_class() == ("lmi_backend.engines.vllm.cpu.Worker" if is_cpu else "auto")


def test_ranks_share_memory_with_their_own_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GROUP_VARIABLE, "lmi-x-0")
    # vLLM 0.11 to 0.33 name the memory by this.
    named = cpu.Worker("env://").distributed_init_method.split(":")[-1]
    assert named == f"lmi-x-0-{socket.gethostname()}"
    assert cpu.Worker().distributed_init_method == "tcp://127.0.0.1:5"


def test_with_lora_a_worker_applies_it_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CPUWorker, "vllm_config", SimpleNamespace(lora_config="any"))
    worker = cpu.Worker()
    worker.init_device()
    assert type(worker.model_runner) is SimpleNamespace
    assert names.current_platform.get_punica_wrapper() == f"{cpu.__name__}.PunicaWrapper"
    assert issubclass(cpu.PunicaWrapper, PunicaWrapperCPU)
