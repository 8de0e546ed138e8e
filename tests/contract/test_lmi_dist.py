"""LMI-Dist is vLLM whose ranks mpirun starts: two of them on the CPU answer as one process does."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from lmi_backend.errors import CancelledError, EngineDeadError
from lmi_backend.generation import GenerateRequest, HttpRequest, Sampling
from tests.support.harness import RecordingSink

WRONG = Path(__file__).resolve().parents[2] / ".cache" / "tiny" / "lora"


@pytest.fixture(scope="module")
def dist(start: Any, tiny_properties: dict[str, Any]) -> Iterator[Any]:
    properties = {"option.rolling_batch": "lmi-dist", "option.tensor_parallel_degree": 2}
    with start(tiny_properties | properties) as harness:
        assert harness.plan.parallel.mode == "mpi"
        yield harness


def test_the_answers_are_those_of_one_process(
    dist: Any, questions: dict[str, str], long_questions: dict[str, str]
) -> None:
    """All at once, twice each; the answers were verified on one process."""
    asked = [*(questions | long_questions).items()] * 2
    streams = [dist.start(prompt, max_tokens=300) for prompt, _ in asked]
    assert len(streams) >= 32
    assert [stream.wait().text for stream in streams] == [answer for _, answer in asked]


def test_a_stream_is_cancelled_in_the_middle(dist: Any) -> None:
    stream = dist.start("Count to one hundred:", max_tokens=900, ignore_eos=True).wait_first()
    stream.is_gone = True
    assert isinstance(stream.wait().error, CancelledError)
    end = time.monotonic() + 10
    while dist.running():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_an_adapter_answers_on_every_rank(dist: Any) -> None:
    loading = RecordingSink()
    dist.service.adapt("wrong", str(WRONG), loading, preload=True, pin=False)
    assert loading.wait().error is None
    prompt, sampling = "The capital of France is", Sampling(8, temperature=0.0)
    base = dist.submit([GenerateRequest(prompt, sampling)]).wait()
    other = dist.submit([GenerateRequest(prompt, sampling, adapter="wrong")]).wait()
    assert other.error is None
    assert (base.text, other.text != base.text) == (" Paris.", True)


def test_an_openai_body_is_answered(dist: Any) -> None:
    body = b'{"prompt": "The capital of Italy is", "max_tokens": 8, "temperature": 0}'
    answer = dist.submit(HttpRequest("/v1/completions", body)).wait()
    assert b" Rome." in b"".join(chunk.data for chunk in answer.deltas)


def test_python_mode_splits_layers_too(
    start: Any, tiny_properties: dict[str, Any], questions: dict[str, str]
) -> None:
    """The same degree, whose processes vLLM starts by itself; each gets a core of its own."""
    with start(tiny_properties | {"option.tensor_parallel_degree": 2}) as harness:
        assert (harness.plan.parallel.mode, harness.plan.parallel.processes) == ("python", 1)
        streams = {prompt: harness.start(prompt) for prompt in questions}
        assert {prompt: stream.wait().text for prompt, stream in streams.items()} == questions


def _shared_memory() -> set[str]:
    """Return the names of what groups share; restarted groups share other memory."""
    return {str(path.stat().st_ino) for path in Path("/dev/shm").glob("lmi-*-cpushm*")}


def test_a_killed_rank_ends_every_stream(dist: Any) -> None:
    """Last: the worker is gone for a while after this."""
    streams = [
        dist.start("Count to one hundred:", max_tokens=900, ignore_eos=True).wait_first()
        for _ in range(8)
    ]
    (launcher,) = psutil.Process().children()
    members = launcher.children(recursive=True)
    (second,) = (
        each for each in launcher.children() if each.environ()["OMPI_COMM_WORLD_RANK"] == "1"
    )
    shared = _shared_memory()
    assert shared
    began = time.monotonic()
    second.kill()
    for stream in streams:
        error = stream.wait().error
        assert isinstance(error, EngineDeadError)
        assert "rank 1" in str(error)
    assert time.monotonic() - began < 2
    gone, alive = psutil.wait_procs(members, timeout=5)
    assert (len(gone), alive) == (len(members), [])
    assert not shared & _shared_memory()
