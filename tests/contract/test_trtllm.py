"""TensorRT-LLM's adapter on the library's double, under the real mpirun."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from lmi_backend.errors import ConfigurationError, EngineDeadError, EngineError, RequestError
from lmi_backend.generation import GenerateRequest, Sampling
from lmi_backend.options.table.trtllm import STEP_COUNTS
from tests.contract.conftest import TRTLLM
from tests.support.run.places import LORA
from tests.support.run.waiting import HANG_SECONDS, wait_for

MODEL = {"option.rolling_batch": "trtllm", "option.model_id": "org/model", **TRTLLM}
TWO = {"option.tensor_parallel_degree": 2}


@pytest.mark.parametrize("release", ["1.0.0", "1.2.1"])
def test_each_release_is_given_what_it_takes(start: Any, doubles: None, release: str) -> None:
    """1.0 takes no headers of a trace, and hands out the counts of its steps otherwise.

    One rank needs no mpirun in any.
    """
    with start(MODEL | {"option.env": f"DOUBLE_OF_TRTLLM={release}"}) as harness:
        assert (harness.plan.parallel.mode, harness.plan.parallel.processes) == ("python", 1)
        assert harness.workers[0].name() != "mpirun"
        traced = GenerateRequest("a b", Sampling(3), trace_headers={"traceparent": "00-1-2-01"})
        assert harness.submit([traced]).wait().text == "a ba"
        endless = harness.start("a b c", max_tokens=100_000)
        counted = _until(harness, lambda stats: stats.kv_cache_usage > 0)
        # What the double counts: 1000 blocks of 32 tokens, four reused, and those in use.
        assert (counted.kv_blocks, counted.kv_block_size, counted.prompt_tokens_cached) == (
            1000,
            32,
            128,
        )
        assert counted.prompt_tokens_looked_up == (4 + 3121) * 32
        endless.is_gone = True
        assert _until(harness, lambda stats: stats.kv_cache_usage == 0).kv_blocks == 1000


def _until(harness: Any, is_so: Callable[[Any], bool]) -> Any:
    """Return the engine's stats once they are so."""
    seen: list[Any] = []

    def is_there() -> bool:
        seen.extend(worker.stats for worker in harness.service.snapshot().workers)
        return is_so(seen[-1])

    wait_for(is_there)
    return seen[-1]


@pytest.mark.parametrize(
    "why",
    [{"option.enable_iter_perf_stats": "false"}, {"option.env": f"DOUBLE_LACKS={STEP_COUNTS}"}],
)
def test_steps_are_not_counted_where_nobody_wants_it_or_the_library_cannot(
    start: Any, doubles: None, why: dict[str, str]
) -> None:
    with start(MODEL | why) as harness:
        assert harness.ask("a b", max_tokens=600).error is None
        assert harness.service.snapshot().workers[0].stats.kv_blocks == 0


def test_an_argument_the_library_does_not_know_fails_the_load(start: Any, doubles: None) -> None:
    unknown = MODEL | {"option.mpi_mode": "false", "option.quite_new_argument": "1"}
    with pytest.raises(ConfigurationError, match="quite_new_argument"), start(unknown):
        pass


def test_a_dead_engine_comes_back_and_closing_ends_every_process_by_itself(
    start: Any, doubles: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real library waits for ever for a killed rank, and so does the double."""
    monkeypatch.setattr("lmi_backend.pool.pool._STOP_SECONDS", 600.0)
    with start(MODEL | TWO | {"option.migration_timeout": 0}) as harness:
        for how in ("the library dies", "a rank is killed"):
            streams = [harness.start("a b c", max_tokens=4000).wait_first() for _ in range(4)]
            (launcher,) = harness.workers
            if how == "the library dies":
                streams.append(harness.start("deadly"))
            else:
                ranks = {e.environ()["OMPI_COMM_WORLD_RANK"]: e for e in launcher.children()}
                ranks["1"].kill()
            for stream in streams:
                assert isinstance(stream.wait().error, EngineDeadError)
            wait_for(lambda: harness.service.health().is_ready)
            assert harness.ask("a", max_tokens=2).text == "aa"
        wait_for(lambda: not launcher.is_running())
        (launcher,) = harness.workers
        members = launcher.children(recursive=True)
    _, alive = psutil.wait_procs(members, timeout=HANG_SECONDS)
    assert not alive


# Last, since its ranks poll each other as long as they live.
@pytest.fixture(scope="module")
def engine(start: Any, doubles: None) -> Iterator[Any]:
    with start(MODEL | TWO | {"option.enable_lora": "true"}) as harness:
        assert (harness.plan.parallel.mode, harness.plan.parallel.processes) == ("mpi", 2)
        yield harness


@pytest.mark.parametrize("prompt", ["an unlucky one", "x unlucky"])
def test_one_request_that_fails_harms_no_other(engine: Any, prompt: str) -> None:
    other = engine.start("a b c", max_tokens=200)
    assert isinstance(engine.ask(prompt).error, EngineError)
    assert other.wait().error is None


def test_an_adapter_is_named_with_the_request(engine: Any, tmp_path: Path) -> None:
    """The library reads its files later: those that are not whole do not reach it."""
    folder = shutil.copytree(LORA, tmp_path / "mine")
    assert engine.adapt("mine", folder).error is None
    request = GenerateRequest("a", Sampling(2), adapter="mine")
    assert engine.submit([request]).wait().text == " mine mine"
    shutil.rmtree(folder)
    missing = engine.submit([request]).wait()
    assert "adapter_config.json" in str(missing.error)
    shutil.copytree(LORA, folder)
    assert engine.submit([request]).wait().text == " mine mine"
    unknown = engine.submit([GenerateRequest("a", Sampling(2), adapter="other")]).wait()
    assert isinstance(unknown.error, RequestError)


def test_a_value_the_library_refuses_is_the_clients(engine: Any) -> None:
    refused = engine.ask("a", temperature=-1.0)
    assert isinstance(refused.error, RequestError)
    assert "temperature" in str(refused.error)


def test_two_guides_are_refused(engine: Any) -> None:
    both = {"structured_outputs": {"regex": "a", "json_object": True}}
    assert isinstance(engine.ask("a", extra=both).error, RequestError)


def test_a_grammar_beyond_the_bounds_is_refused(engine: Any) -> None:
    many = {"structured_outputs": {"choice": [str(number) for number in range(20_001)]}}
    refused = engine.ask("a", extra=many).error
    assert isinstance(refused, RequestError)
    assert "option.max_structure_" in str(refused)
