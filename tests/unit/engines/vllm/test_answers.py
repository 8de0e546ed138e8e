"""Which chunks an answer of our own has; however tokens come together, it is the same."""

import asyncio
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm import fast_paths, names
from lmi_backend.engines.vllm.answers import generate, requests_of
from lmi_backend.engines.vllm.requests import OutputReader
from lmi_backend.errors import EngineError
from lmi_backend.generation import GenerateRequest, Sampling
from lmi_backend.tokenization import unpack
from tests.support.run.waiting import turns
from tests.unit.engines.vllm.vllm_engine import AsyncLLM, OutputProcessor, Sink, answered
from tests.unit.engines.vllm.vllm_parts import (
    PROMPT,
    ClientError,
    FinishReason,
    Output,
    Params,
    Tokenizer,
    lists,
)

pytestmark = pytest.mark.usefixtures("vllm")

STEPS = 5
SUBSETS = [each for count in range(STEPS + 1) for each in combinations(range(STEPS), count)]
GRAMMAR: dict[str, Any] = {"structured_outputs": {"json": {}}}


def steps(*ids: list[int], reason: str = "length", logprobs: bool = False) -> list[Output]:
    """Return the outputs of the steps of an answer that ends with the last one."""
    made = [Output("a", each, lists(each, 1, 65) if logprobs else None) for each in ids]
    made[-1].finish_reason = FinishReason[reason.upper()]
    return made


ANSWERS: dict[str, tuple[list[Output], dict[str, Any]]] = {
    "words": (steps([65], [1], [2], [3], [66, 67, 7], [68]), {}),
    "a stop string that is held back": (
        steps([65], [66], [4], [83, 84], [4, 5, 65], [66]), {"stop": ["STOP"]}
    ),
    "no stop string after all": (steps([65], [4], [66], [4], [66], [4]), {"stop": ["STOP"]}),
    "a stop string that is shown": (
        steps([65], [66], [67], [68], [4, 5, 65, 66], [66]),
        {"stop": ["STOP"], "include_stop_str_in_output": True},
    ),
    "a stop token": (steps([65], [66], [67], [1], [68, 6], reason="stop"), {}),
    "log probabilities": (
        steps([65], [2], [3], [66, 2], [3, 1], [65], logprobs=True), {"logprobs": 0}
    ),
    "candidates": (
        steps([65], [66], [2, 3], [66, 67], [1], [65], logprobs=True), {"logprobs": 2}
    ),
    "log probabilities and a stop string": (
        steps([65], [66], [67], [4], [5, 1, 2], [65], logprobs=True),
        {"logprobs": 1, "stop": ["STOP"]},
    ),
    "a grammar that nothing fits after four": (
        steps([65], [66], [67], [68], [69], reason="error"), {"structured_outputs": object()}
    ),
    "a failure": (steps([65], [66, 67], [68], [69], [70], reason="error"), {}),
    "an abort": (steps([65], [66], [67], [68], [], reason="abort"), {}),
}  # fmt: skip


async def deltas(outputs: list[Output], params: dict[str, Any], deferred: Any) -> Any:
    """Return what the deltas of an answer tell together."""
    engine, sink = AsyncLLM(), Sink(deferred)
    sampling = Sampling(extra=GRAMMAR if "structured_outputs" in params else {})
    made = reader(sampling=sampling, stream=True, logprobs=params.get("logprobs"))
    made.sends_ids = True
    error = await answered(engine, made, outputs, sink, **params)
    last = sink.taken[-1] if sink.taken else None
    return (
        "".join(each.text for each in sink.taken),
        [token for each in sink.taken for group in unpack(each.ids) for token in group],
        [token for each in sink.taken for token in each.tokens],
        last and (last.finish_reason, last.stop_reason, last.cumulative_logprob),
        (
            sum(each.num_tokens for each in sink.taken),
            any(each.is_last for each in sink.taken[:-1]),
        ),
        (type(error), str(error)),
        engine.engine_core.aborted,
    )


def reader(**asked: Any) -> OutputReader:
    return OutputReader(Tokenizer(), GenerateRequest("", **asked))


async def begun(engine: AsyncLLM, sink: Sink, **params: Any) -> tuple[Any, dict[str, Any]]:
    """Return the task of a request that the engine has, and the request's arguments."""
    arguments = {
        "request_id": "a", "prompt": {"prompt_token_ids": PROMPT}, "params": Params(**params),
    }  # fmt: skip
    task = asyncio.ensure_future(generate(engine, arguments, reader(), sink))
    await turns()
    return task, arguments


async def test_one_of_several_answers_that_fails_ends_the_others() -> None:
    engine, sink = AsyncLLM(), Sink()
    bad = Output("0_a", [65], finish_reason=FinishReason.ERROR)
    error = await answered(engine, reader(), [Output("1_a", [66]), bad], sink, n=2)
    assert isinstance(error, EngineError)
    assert "1_a" in engine.engine_core.aborted
    assert engine.output_processor.answers == {}


async def test_a_whole_answer_is_one_chunk_with_the_time_that_it_took() -> None:
    sink = Sink()
    outputs = steps([65], [2], [3], [66])
    assert await answered(AsyncLLM(), reader(stream=False), outputs, sink) is None
    (chunk,) = sink.taken
    assert (chunk.text, chunk.num_tokens, chunk.finish_reason) == ("AéB", 4, "length")
    assert chunk.decode_seconds >= 0
    assert sink.asked == []
    streamed = Sink()
    await answered(AsyncLLM(), reader(), outputs, streamed)
    assert {each.decode_seconds for each in streamed.taken} == {None}


@pytest.mark.parametrize("stop", [[], ["never"]])
@pytest.mark.parametrize(("engines", "own"), [(3, None), (1, 3), (2, 3), (3, 1)])
async def test_a_chunk_of_the_middle_has_as_many_tokens_as_are_asked_for(
    stop: list[str], engines: int, own: int | None
) -> None:
    sink = Sink()
    engine = AsyncLLM(stream_interval=engines)
    outputs = steps(*([65 + number] for number in range(9)))
    await answered(engine, reader(), outputs, sink, stop=stop, stream_interval=own)
    assert [each.num_tokens for each in sink.taken] == [1, 3, 3, 2]
    # Nobody is asked whether fewer may wait.
    assert sink.asked == [1, 3, 3]


async def test_a_tick_hands_over_what_stays_and_once() -> None:
    sink, engine = Sink(range(99)), AsyncLLM()
    task, arguments = await begun(engine, sink)
    engine.step(Output("a", [65]))
    engine.step(Output("a", [66]))
    assert sink.taken == []
    sink.flush()
    assert [(each.text, each.num_tokens) for each in sink.taken] == [("AB", 2)]
    engine.step(Output("a", [67], finish_reason=FinishReason.STOP))
    await task
    sink.flush()
    # The text of a stop token is not the answer's.
    assert [each.text for each in sink.taken] == ["AB", ""]
    # It may hold images.
    assert "prompt" not in arguments


async def test_a_cancelled_request_is_aborted_and_forgotten() -> None:
    sink, engine = Sink(), AsyncLLM()
    task, _ = await begun(engine, sink, n=2)
    assert len(requests_of(engine)) == 2
    engine.step(Output("0_a", [65], finish_reason=FinishReason.STOP))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert engine.engine_core.aborted == ["1_a"]
    assert requests_of(engine) == []
    engine.step(Output("1_a", [66]))
    assert len(sink.taken) == 1


async def test_nothing_is_sent_to_a_core_that_is_dead() -> None:
    engine = AsyncLLM()
    task, _ = await begun(engine, Sink())
    engine.errored = True
    engine.output_processor.propagate_error(RuntimeError("dead"))
    with pytest.raises(RuntimeError, match="dead"):
        await task
    assert engine.engine_core.aborted == []


async def test_a_vllm_that_takes_requests_otherwise_is_seen() -> None:
    engine = AsyncLLM()
    engine.output_processor.__class__ = OutputProcessor
    error = await answered(engine, reader(), [], Sink())
    assert "past its output processor" in str(error)


async def test_log_probabilities_that_do_not_come_fail_the_request() -> None:
    """An answer without them would look whole, and one with those of other tokens too."""
    outputs = steps([65], [66])
    error = await answered(AsyncLLM(), reader(logprobs=0), outputs, Sink(), logprobs=0)
    assert "vLLM gives no log probabilities" in str(error)
    outputs[0].new_logprobs = lists([65])
    error = await answered(AsyncLLM(), reader(logprobs=0), outputs, Sink(), logprobs=0)
    assert "vLLM gives no log probabilities" in str(error)


@pytest.mark.parametrize("answer", ANSWERS)
async def test_deltas_are_the_same_together(answer: str) -> None:
    outputs, params = ANSWERS[answer]
    whole = await deltas(outputs, params, ())
    assert whole[1]
    for subset in SUBSETS:
        assert await deltas(outputs, params, subset) == whole, subset


async def test_what_each_answer_ends_in() -> None:
    """The tests above compare answers with each other; here is what they are."""
    found = {name: await deltas(*answer, ()) for name, answer in ANSWERS.items()}
    assert {
        name: (each[0], each[3][:2], each[6]) for name, each in found.items() if each[3][0]
    } == {
        "words": ('Aword éBC"\nD', ("length", None), []),
        "a stop string that is held back": ("ABSTOST", ("stop", "STOP"), ["a"]),
        "no stop string after all": ("ASTOBSTOBSTO", ("length", None), []),
        "a stop string that is shown": ("ABCDSTOP", ("stop", "STOP"), ["a"]),
        "a stop token": ("ABCword D", ("stop", None), []),
        "log probabilities": ("AéBéword A", ("length", None), []),
        "candidates": ("ABéBCword A", ("length", None), []),
        "log probabilities and a stop string": ("ABC", ("stop", "STOP"), ["a"]),
        "an abort": ("ABCD", ("abort", None), []),
    }
    # Tokens behind the one that completes a stop string are not the answer's.
    assert found["a stop string that is held back"][1] == [65, 66, 4, 83, 84, 4, 5]
    texts = [each.text for each in found["log probabilities"][2]]
    assert texts == ["A", "", "é", "B", "", "é", "word ", "A"]
    stopped = found["log probabilities and a stop string"]
    assert [each.text for each in stopped[2]] == ["A", "B", "C", "STO", "P!"]
    assert stopped[3][2] == sum(each.logprob for each in stopped[2])
    assert "after 4 tokens" in found["a grammar that nothing fits after four"][5][1]
    assert "vLLM failed on the request" in found["a failure"][5][1]


class _Newer(Output):
    """An output of a later release."""

    error: Any = None
    added: str | None = None


async def test_a_member_that_no_release_had_fails_its_answer_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(vars(names), "EngineCoreOutput", _Newer)
    usual = [_Newer("a", [65]), _Newer("a", [66], finish_reason=FinishReason.LENGTH)]
    assert await answered(AsyncLLM(), reader(), usual, Sink()) is None
    assert fast_paths.is_on("own_streams")
    sink = Sink()
    outputs = [_Newer("a", [65]), _Newer("a", [66]), _Newer("a", [67], added="more")]
    error = await answered(AsyncLLM(), reader(), outputs, sink)
    assert isinstance(error, EngineError)
    assert "added: 'more'" in str(error)
    assert [each.text for each in sink.taken] == ["A", "B"]
    # vLLM makes the answers that come next.
    assert "added: 'more'" in fast_paths.reason_of("own_streams")


async def test_vllms_own_reason_of_a_failure_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Since 0.33 an output may have one."""
    monkeypatch.setitem(vars(names), "EngineCoreOutput", _Newer)
    given = SimpleNamespace(to_exception=lambda: ClientError("paused"))
    outputs = [
        _Newer("a", [65]), _Newer("a", [], finish_reason=FinishReason.ERROR, error=given),
    ]  # fmt: skip
    sink = Sink()
    error = await answered(AsyncLLM(), reader(), outputs, sink)
    assert (type(error), str(error)) == (ClientError, "paused")
    assert [each.text for each in sink.taken] == ["A"]
