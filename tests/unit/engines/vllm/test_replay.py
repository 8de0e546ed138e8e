"""Answers by vLLM's public method, and those that resume: they are what they would have been."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from lmi_backend.engines.vllm import fast_paths
from lmi_backend.engines.vllm.answers import current_generation, generate
from lmi_backend.engines.vllm.bodies import generate_publicly
from lmi_backend.engines.vllm.requests import OutputReader
from lmi_backend.engines.vllm.resume import Repeated, ReplayedAnswer, resume_strategy_of
from lmi_backend.errors import EngineError
from lmi_backend.generation import Continuation, Delta, GenerateRequest
from lmi_backend.tokenization import pack, unpack
from tests.unit.engines.vllm.vllm_engine import AsyncLLM, Sink
from tests.unit.engines.vllm.vllm_parts import (
    PROMPT,
    FinishReason,
    Kind,
    Output,
    Params,
    Tokenizer,
    lists,
)

pytestmark = pytest.mark.usefixtures("vllm")

TEXT = [65, 2, 3, 4, 66, 1, 67, 4, 5, 68]
KNOWN = [[65], [2, 3], [4]]
"""Groups that the client has: half a stop string is in the last one."""
PARAMS = {"max_tokens": len(TEXT), "min_tokens": 5}
WAYS: list[dict[str, Any]] = [PARAMS, PARAMS | {"frequency_penalty": 0.5}]


def continuation(*groups: list[int], total: float | None = None) -> Continuation:
    return Continuation(b"".join(map(pack, groups or KNOWN)), cumulative_logprob=total)


def reader(params: dict[str, Any]) -> OutputReader:
    found = OutputReader(Tokenizer(), GenerateRequest("", logprobs=params.get("logprobs")))
    found.sends_ids = True
    return found


async def deltas(
    engine: AsyncLLM, params: dict[str, Any], known: Continuation | None, *, by_own: bool = True
) -> list[Delta]:
    sink, added = Sink(), list[str]()
    arguments = {
        "request_id": "a", "prompt": {"prompt_token_ids": PROMPT}, "params": Params(**params),
    }  # fmt: skip

    async def note() -> None:
        added.append("added")

    way: Any = generate if by_own else generate_publicly
    given = engine, arguments, reader(params), sink
    await way(*given, continuation=known, on_added=note)
    assert added
    # It may hold images.
    assert "prompt" not in arguments
    return sink.taken


@pytest.mark.parametrize("params", WAYS)
async def test_the_core_begins_behind_the_tokens_or_repeats_them(params: dict[str, Any]) -> None:
    engine, count = AsyncLLM(TEXT), sum(map(len, KNOWN))
    await deltas(engine, params, continuation())
    # What this task requests next is another's.
    assert current_generation.get() is None
    (sent,) = engine.engine_core.added
    limits = sent.sampling_params.max_tokens, sent.sampling_params.min_tokens
    if "frequency_penalty" in params:
        assert (sent.prompt_token_ids, limits) == (PROMPT, (len(TEXT), 5))
    else:
        assert sent.prompt_token_ids == [*PROMPT, *TEXT[:count]]
        assert limits == (len(TEXT) - count, 1)


async def test_a_resumed_answer_says_what_the_first_worker_had_cached() -> None:
    known = replace(continuation(), num_cached_tokens=2)
    found = await deltas(AsyncLLM(TEXT), PARAMS, known, by_own=False)
    assert found[0].num_cached_tokens == 2


@pytest.mark.parametrize("by_own", [True, False])
async def test_a_core_that_comes_out_otherwise_fails_the_request(*, by_own: bool) -> None:
    engine = AsyncLLM(TEXT)
    engine.engine_core.others[2] = 70
    with pytest.raises(EngineError, match="generated other tokens"):
        await deltas(engine, WAYS[1], continuation(), by_own=by_own)
    assert {*engine.engine_core.aborted} == {"a"}
    assert engine.output_processor.answers == engine.output_processor.replays == {}


@pytest.mark.parametrize("by_own", [True, False])
async def test_an_answer_that_has_finished_here_fails(*, by_own: bool) -> None:
    engine = AsyncLLM(TEXT)
    known = continuation([4], [5])
    with pytest.raises(EngineError, match="has finished"):
        await deltas(engine, PARAMS | {"stop": ["STOP"]}, known, by_own=by_own)


async def test_a_request_that_was_not_seen_on_its_way_fails() -> None:
    engine = AsyncLLM(TEXT, is_attached=False)
    with pytest.raises(EngineError, match="cannot resume"):
        await deltas(engine, PARAMS, continuation(), by_own=False)
    assert not fast_paths.is_on("resumption")
    with pytest.raises(EngineError, match="cannot be resumed"):
        ReplayedAnswer(engine, continuation())


async def test_what_is_known_is_not_sent_again_with_an_interval() -> None:
    engine = AsyncLLM(TEXT, stream_interval=4)
    found = await deltas(engine, PARAMS, continuation(), by_own=False)
    assert [unpack(each.ids) for each in found] == [
        [[66, 1, 67, 4]], [[5, 68]],
    ]  # fmt: skip


def test_repeated_tokens_are_taken_from_outputs_with_theirs() -> None:
    repeated = Repeated([1, 2, 3])
    assert repeated.new_of(Output("a", [1])) is None
    assert repeated
    output = repeated.new_of(Output("a", [2, 3, 4, 5], lists([2, 3, 4, 5])))
    assert output.new_token_ids == [4, 5]
    assert output.new_logprobs.logprob_token_ids.tolist() == [[4], [5]]
    assert not repeated


@pytest.mark.parametrize("ids", [[1, 9], [1]])
def test_an_end_before_all_is_repeated_is_another_answer(ids: list[int]) -> None:
    output = Output("a", ids, finish_reason=FinishReason.STOP)
    with pytest.raises(EngineError, match="generated other tokens"):
        Repeated([1, 2, 3]).new_of(output)
    assert fast_paths.reason_of("forced_tokens")


def test_a_core_that_does_not_generate_what_is_forced_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})
    with pytest.raises(EngineError, match="generated other tokens"):
        Repeated([1, 2, 3], are_forced=True).new_of(Output("a", [1, 5]))
    assert "[1, 5] instead of [1, 2]" in fast_paths.reason_of("forced_tokens")


SAMPLED: dict[str, Any] = {"n": 1, "output_kind": Kind.DELTA, "temperature": 1.0, "seed": None}


def way(*, is_marking: bool = False, **params: Any) -> str:
    config = SimpleNamespace(watermark_config=object() if is_marking else None)
    engine = SimpleNamespace(vllm_config=config, model_config=SimpleNamespace())
    return resume_strategy_of(engine, SimpleNamespace(**SAMPLED | params))


@pytest.mark.parametrize(
    ("params", "resumes"),
    [
        ({}, "from the prompt"),
        ({"n": 2}, ""),
        ({"output_kind": Kind.FINAL_ONLY}, ""),
        ({"seed": 7}, "from the start"),
        ({"frequency_penalty": 0.5}, ""),
        ({"frequency_penalty": 0.5, "seed": 7}, "from the start"),
        # vLLM 0.30 and 0.31 have this in each request, 0.32 has None there.
        ({"watermarking": True}, "from the prompt"),
        ({"watermarking": False, "is_marking": True}, "from the prompt"),
        ({"watermarking": True, "is_marking": True}, ""),
        ({"watermarking": None, "is_marking": True}, ""),
        ({"watermarking": None, "is_marking": True, "temperature": 0.0}, "from the start"),
    ],
)
def test_the_way_of_a_request(params: dict[str, Any], resumes: str) -> None:
    assert way(**params) == resumes


class NewerParams(msgspec.Struct):
    """Has what vLLM's have, and what no release had that was run."""

    n: int = 1
    output_kind: Kind = Kind.DELTA
    temperature: float = 1.0
    seed: int | None = None
    dry_multiplier: float = 0.0
    _eos_token_id: int | None = None


@pytest.mark.parametrize(
    ("params", "resumes"),
    [
        (NewerParams(), "from the prompt"),
        (NewerParams(_eos_token_id=2), "from the prompt"),
        (NewerParams(dry_multiplier=0.8), ""),
        (NewerParams(dry_multiplier=0.8, seed=7), "from the start"),
    ],
)
def test_an_unknown_parameter_may_tell_generated_tokens_from_a_prompt(
    params: NewerParams, resumes: str
) -> None:
    engine = SimpleNamespace(vllm_config=None, model_config=SimpleNamespace())
    assert resume_strategy_of(engine, params) == resumes
