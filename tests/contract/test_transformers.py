"""Transformers, LMI's Accelerate: its batch, what it does one by one, T5, adapters, two ranks."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.errors import CancelledError, RequestError
from lmi_backend.generation import GenerateRequest, Sampling
from tests.support.run.places import LORA, TINY_DATA
from tests.support.servers.harness import RecordingSink

LONG = "Count to one hundred:"
PROMPT = "The capital of France is"
one_process = pytest.mark.parametrize("engine", ["transformers"], indirect=True)


def _properties(tiny_properties: dict[str, Any]) -> dict[str, Any]:
    names = ("option.model_id", "option.pythonExecutable", "option.dtype", "option.env")
    return {name: tiny_properties[name] for name in names} | {"option.rolling_batch": "disable"}


@pytest.fixture(scope="module")
def t5(start: Any, tiny_properties: dict[str, Any]) -> Iterator[Any]:
    with start(_properties(tiny_properties) | {"option.model_id": TINY_DATA / "t5"}) as harness:
        yield harness


def _ask(engine: Any, prompt: str, *, adapter: str = "", **sampling: Any) -> RecordingSink:
    request = GenerateRequest(prompt, Sampling(**{"max_tokens": 16} | sampling), adapter=adapter)
    sink: RecordingSink = engine.submit([request])
    return sink


@pytest.mark.parametrize("engine", ["transformers", "transformers mpi"], indirect=True)
def test_all_answers_at_once_are_those_of_vllm(
    engine: Any, questions: dict[str, str], long_questions: dict[str, str]
) -> None:
    asked = questions | long_questions
    streams = {prompt: engine.start(prompt, max_tokens=300) for prompt in asked}
    assert {prompt: stream.wait().text for prompt, stream in streams.items()} == asked


def test_an_encoder_decoder_model_answers(t5: Any) -> None:
    known = json.loads((TINY_DATA / "t5.json").read_text("utf-8"))
    streams = [(t5.start(each["prompt"], max_tokens=40), each["answer"]) for each in known]
    assert all(stream.wait().text.strip() == answer.strip() for stream, answer in streams)
    assert {stream.deltas[-1].finish_reason for stream, _ in streams} == {"stop"}


def test_a_model_may_be_an_adapter_and_its_files_stop_sequences_end_every_answer(
    start: Any, tiny_properties: dict[str, Any]
) -> None:
    own = {"option.model_id": LORA, "option.stop_sequence": "on,never"}
    with start(_properties(tiny_properties) | own) as harness:
        ended = _ask(harness, PROMPT, temperature=0.0).wait()
        by_both = _ask(harness, PROMPT, temperature=0.0, stop=("y",)).wait()
    assert (ended.text, ended.deltas[-1].finish_reason) == (" Ly", "stop")
    assert by_both.text == " L"


@one_process
def test_what_a_batch_cannot_do_is_done_beside_it(engine: Any) -> None:
    batched = [engine.start(LONG, max_tokens=200) for _ in range(4)]
    batched[0].wait_first()
    alone = _ask(engine, LONG, temperature=0.0, repetition_penalty=1.0001, max_tokens=60).wait()
    assert alone.error is None
    assert len({stream.wait().text for stream in batched}) == 1
    assert batched[0].text.startswith(alone.text)


@one_process
def test_a_seed_gives_the_same_answer_again_whatever_runs_beside_it(engine: Any) -> None:
    drawn = {"temperature": 5.0, "seed": 3}
    first = _ask(engine, PROMPT, **drawn).wait().text
    noise = [_ask(engine, LONG, temperature=5.0, max_tokens=100) for _ in range(4)]
    assert _ask(engine, PROMPT, **drawn).wait().text == first
    assert _ask(engine, PROMPT, **drawn | {"seed": 4}).wait().text != first
    assert len({each.wait().text for each in noise}) == 4


@pytest.mark.parametrize(
    "sampling",
    [
        {"repetition_penalty": 50.0},
        {"presence_penalty": 50.0},
        {"frequency_penalty": 50.0},
        {"bad_words": (" one",)},
        {"min_tokens": 80},
    ],
)
@one_process
def test_each_parameter_changes_the_answer(engine: Any, sampling: dict[str, Any]) -> None:
    asked = {"temperature": 0.0, "max_tokens": 90}
    prompt = PROMPT if "min_tokens" in sampling else LONG
    plain = _ask(engine, prompt, **asked).wait()
    changed = _ask(engine, prompt, **asked | sampling).wait()
    assert changed.error is None
    assert changed.text != plain.text
    if "min_tokens" in sampling:
        assert sum(delta.num_tokens for delta in changed.deltas) >= 80


@one_process
def test_beams_answer_at_the_end(engine: Any) -> None:
    sink = _ask(engine, PROMPT, temperature=0.0, extra={"num_beams": 3}).wait()
    assert (sink.error, sink.text, len(sink.deltas)) == (None, " Paris.", 1)


@one_process
def test_a_parameter_nobody_knows_is_named(engine: Any) -> None:
    sink = _ask(engine, PROMPT, extra={"structured_outputs": {"regex": "a"}}).wait()
    assert isinstance(sink.error, RequestError)
    assert sink.error.field == "structured_outputs"


@one_process
def test_one_that_runs_alone_is_cancelled(engine: Any) -> None:
    sinks = [
        _ask(engine, LONG, repetition_penalty=1.1, max_tokens=1500, ignore_eos=True)
        for _ in range(3)
    ]
    sinks[0].wait_first()
    for sink in sinks:
        sink.is_gone = True
    for sink in sinks:
        assert isinstance(sink.wait().error, CancelledError)
    assert _ask(engine, PROMPT, temperature=0.0, min_tokens=1).wait().text == " Paris."


@one_process
def test_adapters_come_and_go(engine: Any) -> None:
    known = json.loads((TINY_DATA / "lora.json").read_text("utf-8"))["changed"][0]
    assert engine.adapt("edited", LORA).error is None
    prompt = known["prompt"]
    base = [engine.start(prompt) for _ in range(4)]
    wrong = _ask(engine, prompt, adapter="edited", temperature=0.0).wait()
    assert wrong.text == known["adapted"]
    assert all(sink.wait().text != known["adapted"] for sink in base)
    assert engine.adapt("edited", "").error is None
    gone = _ask(engine, prompt, adapter="edited").wait()
    assert isinstance(gone.error, RequestError)
    assert gone.error.field == "adapter"


@one_process
def test_an_adapter_that_is_none_is_refused(engine: Any) -> None:
    assert isinstance(engine.adapt("t5", TINY_DATA / "t5").error, RequestError)
    assert engine.ask(PROMPT).text == " Paris."


@one_process
def test_an_adapter_whose_weights_are_broken_fails_its_own_request(
    engine: Any, tmp_path: Path
) -> None:
    folder = shutil.copytree(LORA, tmp_path / "broken")
    (folder / "adapter_model.safetensors").write_bytes(b"\xff" * 100)
    assert engine.adapt("broken", folder, preload=False).error is None
    others = [engine.start(PROMPT) for _ in range(4)]
    for _ in range(2):
        error = _ask(engine, PROMPT, adapter="broken").wait().error
        assert isinstance(error, RequestError)
        assert error.field == "adapter"
    assert [other.wait().text for other in others] == [" Paris."] * 4
    shutil.copytree(LORA, folder, dirs_exist_ok=True)
    assert _ask(engine, PROMPT, adapter="broken").wait().error is None


@one_process
def test_a_batch_works_on_all_at_once(engine: Any) -> None:
    (worker,) = engine.workers
    worker.suspend()
    try:
        together = [engine.start(LONG, max_tokens=100) for _ in range(8)]
    finally:
        worker.resume()
    assert all(stream.wait().error is None for stream in together)
    assert max(stream.began_at for stream in together) < min(stream.ended_at for stream in together)
