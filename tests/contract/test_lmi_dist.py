"""LMI-Dist is vLLM whose ranks mpirun starts: two of them on the CPU answer as one process does."""

import os
from typing import Any

import psutil
import pytest

from lmi_backend.generation import GenerateRequest, Sampling
from tests.support.interpreter.releases import has_avx512, vllm_release
from tests.support.run.places import LORA
from tests.support.run.processes import shared_memory
from tests.support.run.waiting import HANG_SECONDS

of_dist = pytest.mark.parametrize("engine", ["vllm mpi"], indirect=True)


@of_dist
def test_the_answers_are_those_of_one_process(
    engine: Any, questions: dict[str, str], long_questions: dict[str, str]
) -> None:
    """All at once, twice each; the answers were verified on one process."""
    assert engine.plan.parallel.mode == "mpi"
    asked = [*(questions | long_questions).items()] * 2
    streams = [engine.start(prompt, max_tokens=300) for prompt, _ in asked]
    assert len(streams) >= 32
    assert [stream.wait().text for stream in streams] == [answer for _, answer in asked]


@pytest.mark.parametrize("engine", ["vllm mpi", "vllm split"], indirect=True)
def test_an_adapter_answers_on_every_rank(engine: Any) -> None:
    """Layers add to rows in one way where adapters are sharded, and in another elsewhere."""
    assert engine.adapt("wrong", LORA).error is None
    prompt, sampling = "The capital of France is", Sampling(8, temperature=0.0)
    # Together: vLLM takes its last slot for a token without an adapter, and this engine has one.
    sinks = [
        engine.submit([GenerateRequest(prompt, sampling, adapter=name)])
        for name in ("wrong", "") * 4
    ]
    assert [sink.wait().text for sink in sinks] == [" Lyon.", " Paris."] * 4


@pytest.mark.parametrize("engine", ["vllm split"], indirect=True)
def test_python_mode_splits_layers_too(engine: Any, questions: dict[str, str]) -> None:
    """The same degree, whose processes vLLM starts by itself; each gets a core of its own."""
    assert (engine.plan.parallel.mode, engine.plan.parallel.processes) == ("python", 1)
    streams = {prompt: engine.start(prompt) for prompt in questions}
    assert {prompt: stream.wait().text for prompt, stream in streams.items()} == questions


@of_dist
def test_a_killed_rank_costs_every_stream_a_pause(engine: Any) -> None:
    with engine.whole_streams():
        (launcher,) = engine.workers
        members = launcher.children(recursive=True)
        (second,) = (
            each for each in launcher.children() if each.environ()["OMPI_COMM_WORLD_RANK"] == "1"
        )
        # Restarted groups share other memory, perhaps under the same name.
        shared = {path: os.stat(path).st_ino for path in shared_memory([second], "lmi-")}
        # The CPU builds of older ones have none, nor has the one for processors without AVX-512.
        assert shared or vllm_release() < (0, 17) or not has_avx512()
        second.kill()
    gone, alive = psutil.wait_procs(members, timeout=HANG_SECONDS)
    assert (len(gone), alive) == (len(members), [])
    left = [path for path in shared if os.path.exists(path)]
    assert not [path for path in left if os.stat(path).st_ino == shared[path]]
