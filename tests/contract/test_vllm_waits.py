"""vLLM's core sleeps at times while it waits for a worker that computes on the CPU (`waits.py`)."""

import platform
from pathlib import Path

import pytest

from tests.support.harness import Harness

_CLOCK_NANOSLEEP = {"x86_64": "230", "aarch64": "115"}


@pytest.mark.parametrize("engine", ["vllm"], indirect=True)
def test_a_waiting_core_sleeps_at_times(engine: Harness) -> None:
    (core,) = (
        process
        for worker in engine.workers
        for process in worker.children(recursive=True)
        if "EngineCore" in " ".join(process.cmdline())
    )
    syscall = Path(f"/proc/{core.pid}/syscall")
    sink = engine.start("Tell a story:", max_tokens=300, ignore_eos=True)
    sink.wait_first()
    seen = set()
    while not sink.endings:
        seen.add(syscall.read_text().split()[0])
    # One that only yields is never seen there.
    assert _CLOCK_NANOSLEEP[platform.machine()] in seen
