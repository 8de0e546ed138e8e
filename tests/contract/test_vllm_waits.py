"""vLLM's processes that wait for each other on a CPU sleep now and then, or until they are told."""

import platform
import time
from pathlib import Path

import psutil
import pytest

from tests.support.harness import Harness
from tests.support.places import ENGINE_PYTHON

_CLOCK_NANOSLEEP = {"x86_64": "230", "aarch64": "115"}
_WAITS = "lib/python3*/site-packages/vllm/distributed/device_communicators/shm_broadcast.py"
_POLL = {"x86_64": "7", "aarch64": "73"}


def _processes(engine: Harness, name: str) -> list[psutil.Process]:
    families = (worker.children(recursive=True) for worker in engine.workers)
    return [each for family in families for each in family if name in " ".join(each.cmdline())]


@pytest.mark.parametrize("engine", ["vllm"], indirect=True)
def test_a_waiting_core_sleeps_at_times(engine: Harness) -> None:
    (core,) = _processes(engine, "EngineCore")
    syscall = Path(f"/proc/{core.pid}/syscall")
    sink = engine.start("Tell a story:", max_tokens=300, ignore_eos=True)
    sink.wait_first()
    seen = set()
    while not sink.endings:
        seen.add(syscall.read_text().split()[0])
    # One that only yields is never seen there.
    assert _CLOCK_NANOSLEEP[platform.machine()] in seen


@pytest.mark.parametrize("engine", ["vllm"], indirect=True)
def test_a_worker_without_work_sleeps_until_it_has_some(engine: Harness) -> None:
    (source,) = ENGINE_PYTHON.parents[1].glob(_WAITS)
    if "class SpinCondition" not in source.read_text(encoding="utf-8"):
        pytest.skip("this release's worker always asks whether there is work")
    (worker,) = _processes(engine, "VLLM::Worker")
    syscall = Path(f"/proc/{worker.pid}/syscall")
    seen = set()
    # By itself vLLM asks for a second after each answer.
    for _ in range(10):
        engine.ask("The capital of France is", max_tokens=4)
        end = time.monotonic() + 0.5
        while time.monotonic() < end and _POLL[platform.machine()] not in seen:
            seen.add(syscall.read_text().split()[0])
    assert _POLL[platform.machine()] in seen
