"""What every engine promises, asked through a real worker process."""

import random
import re
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from lmi_backend.errors import (
    CancelledError,
    EngineDeadError,
    LmiError,
    RequestError,
    StoppingError,
    WorkerStartError,
)
from lmi_backend.generation import GenerateRequest, HttpRequest, Sampling
from lmi_backend.ipc import messages as msg
from lmi_backend.serving.new_requests import Sender
from lmi_backend.tokenization import (
    DECODE_PATH,
    ENCODE_PATH,
    SPANS_PATH,
    Encoded,
    Spanning,
    Spans,
    Texts,
    TokenIds,
)
from tests.contract.conftest import without
from tests.support.run.waiting import HANG_SECONDS, nothing_more, wait_for
from tests.support.servers.harness import Harness, RecordingSink

PROMPT = "Count to one hundred:"


# The doubles have no KV cache to compare the plan with.
@without("trtllm")
def test_the_kv_cache_is_as_large_as_planned(engine: Any) -> None:
    """The estimate of blocks against what the engine reports when it has started."""
    if engine.plan.engine == "echo":
        assert engine.plan.memory is None
        return
    lines = "\n".join(engine.output)
    reported = re.search(r"KV cache size: ([\d,]+) tokens", lines)
    assert reported, lines
    assert engine.plan.memory.num_tokens == int(reported[1].replace(",", ""))


def test_the_last_delta_and_only_that_has_a_finish_reason(engine: Any) -> None:
    sink = engine.ask(PROMPT)
    assert [delta.finish_reason for delta in sink.deltas[:-1]] == [None] * (len(sink.deltas) - 1)
    assert sink.deltas[-1].finish_reason == "length"
    assert sum(delta.num_tokens for delta in sink.deltas) == 32
    assert all(delta.num_prompt_tokens > 0 for delta in sink.deltas)
    assert sink.endings == 1


def test_one_shot_is_one_delta_and_equals_the_stream(engine: Any) -> None:
    whole = engine.ask(PROMPT, stream=False)
    assert len(whole.deltas) == 1
    assert whole.text == engine.ask(PROMPT).text
    assert whole.deltas[0].num_tokens == 32


def test_a_stop_string_ends_the_answer_and_is_named(engine: Any) -> None:
    word = "one"
    sink = engine.ask(f"{PROMPT} ten nine", stop=(word,), max_tokens=200)
    assert sink.deltas[-1].finish_reason == "stop"
    assert sink.deltas[-1].stop_reason == word
    assert word not in sink.text


@pytest.mark.parametrize("engine", ["vllm", "transformers"], indirect=True)
def test_a_stop_string_before_min_tokens_stays_in_the_answer(engine: Any) -> None:
    whole = engine.ask("Tell a story:", max_tokens=40, min_tokens=30)
    sink = engine.ask("Tell a story:", max_tokens=40, min_tokens=30, stop=("a",))
    assert whole.text.startswith(sink.text)
    assert sink.text.count("a") > 2
    assert sink.deltas[-1].stop_reason == "a"
    assert sum(delta.num_tokens for delta in sink.deltas) > 30


def test_a_token_that_the_model_has_not_stops_nothing(engine: Any) -> None:
    """What benchmarks of TensorRT-LLM send as end_id, so that answers have one length."""
    wanted: dict[str, Any] = {"stop_token_ids": (1 << 20,), "min_tokens": 32}
    assert engine.ask(PROMPT, **wanted).text == engine.ask(PROMPT, min_tokens=32).text


def test_many_at_once_each_get_their_own(engine: Any) -> None:
    prompts = [
        f"{PROMPT} {word}"
        for word in ["one", "two", "three", "four", "five", "six", "seven", "eight"]
    ]
    alone = [engine.ask(prompt, max_tokens=12).text for prompt in prompts]
    together = [engine.start(prompt, max_tokens=12) for prompt in prompts * 8]
    assert [sink.wait().text for sink in together] == alone * 8


def test_several_answers_to_several_prompts_are_told_apart(engine: Any) -> None:
    prompts = (f"{PROMPT} one", f"{PROMPT} two")
    alone = [engine.ask(prompt).text for prompt in prompts]
    sampling = Sampling(max_tokens=32, temperature=1.0, top_k=1, seed=1)
    sink = engine.submit(GenerateRequest(prompt, sampling, n=2) for prompt in prompts).wait()
    texts = ["".join(d.text for d in sink.deltas if d.index == index) for index in range(4)]
    assert texts == [alone[0], alone[0], alone[1], alone[1]]
    assert sum(delta.is_last for delta in sink.deltas) == 4


def test_one_prompt_that_fails_ends_the_request(engine: Any) -> None:
    prompts = (PROMPT, "one two " * 4000)
    sink = engine.submit(GenerateRequest(prompt, Sampling(900)) for prompt in prompts).wait()
    assert isinstance(sink.error, RequestError)
    wait_for(lambda: engine.running() == 0)


@pytest.mark.parametrize("stream", [True, False])
def test_tokens_come_where_they_are_asked_for(engine: Any, stream: bool) -> None:
    request = GenerateRequest(
        PROMPT, Sampling(8, temperature=0.0), stream=stream, logprobs=1, prompt_logprobs=0
    )
    sink = engine.submit([request]).wait()
    if engine.plan.engine == "transformers" and engine.plan.parallel.mode == "mpi":
        assert isinstance(sink.error, RequestError)
        assert "option.tensor_parallel_degree" in str(sink.error)
        return
    tokens = [token for delta in sink.deltas for token in delta.tokens]
    assert len(tokens) == 8
    assert sink.deltas[-1].cumulative_logprob == pytest.approx(sum(t.logprob for t in tokens))
    assert all(token.rank == 1 and token.top[0].id == token.id for token in tokens)
    assert not engine.ask(PROMPT).deltas[0].tokens
    if request.prompt_logprobs is None:
        return
    (prompt,) = (delta.prompt_tokens for delta in sink.deltas if delta.prompt_tokens)
    assert len(prompt) == sink.deltas[0].num_prompt_tokens


@pytest.mark.parametrize("engine", ["vllm"], indirect=True)
def test_images_that_a_model_does_not_take_are_refused_each_time(engine: Any) -> None:
    """Few requests with images are worked on at once: one that fails leaves its place."""
    request = GenerateRequest("a", Sampling(4), images=(b"no image",))
    for _ in range(4):
        sink = engine.submit([request]).wait()
        assert isinstance(sink.error, RequestError)
        assert "the model takes text only" in str(sink.error)


@pytest.mark.parametrize("wanted", [{}, {"repetition_penalty": 1.01}, {"min_tokens": 1}])
def test_token_ids_are_a_prompt_and_the_end_of_text_may_be_ignored(
    engine: Any, wanted: dict[str, Any]
) -> None:
    sampling = Sampling(4, temperature=0.0, ignore_eos=True, **wanted)
    sink = engine.submit([GenerateRequest((5, 6, 7), sampling)]).wait()
    if wanted and (engine.plan.engine, engine.plan.parallel.mode) == ("transformers", "mpi"):
        assert isinstance(sink.error, RequestError)
        return
    assert sink.deltas[-1].num_prompt_tokens == 3
    assert sum(delta.num_tokens for delta in sink.deltas) == 4
    assert sink.deltas[-1].finish_reason == "length"


def test_a_body_is_answered_whole(engine: Any) -> None:
    body = {"prompt": "The capital of Italy is", "max_tokens": 2, "temperature": 0}
    status, answer = engine.post("/v1/completions", body).answer
    assert status == 200
    assert {"prompt", "choices"} & answer.keys()


@without("echo")  # which has no tokenizer
def test_a_text_becomes_tokens_and_they_the_text(engine: Any) -> None:
    body = msgspec.json.encode(Texts(PROMPT, stop=["one"]))
    (answer,) = engine.submit(HttpRequest(ENCODE_PATH, body)).wait().deltas
    encoded = msgspec.json.decode(answer.data, type=Encoded)
    assert len(encoded.ids) == engine.ask(PROMPT).deltas[0].num_prompt_tokens
    assert (encoded.bad, len(encoded.stop)) == ([], 1)
    (answer,) = (
        engine.submit(HttpRequest(DECODE_PATH, msgspec.json.encode(TokenIds(encoded.ids))))
        .wait()
        .deltas
    )
    assert msgspec.json.decode(answer.data) == PROMPT
    unknown = msgspec.json.encode(TokenIds([1 << 30]))
    (answer,) = engine.submit(HttpRequest(DECODE_PATH, unknown)).wait().deltas
    assert (answer.status, answer.data[:24]) == (400, b"TOKENS_BATCH 1073741824 ")


# The tokenizer of TensorRT-LLM's double knows no places.
@without("echo", "trtllm")
def test_tokens_have_their_places_in_a_text_and_in_that_of_a_chat(engine: Any) -> None:
    messages = [{"role": "user", "content": PROMPT}]
    for asked in (Spanning(PROMPT), Spanning(chat={"messages": messages, "model": "none"})):
        body = msgspec.json.encode(asked)
        (answer,) = engine.submit(HttpRequest(SPANS_PATH, body)).wait().deltas
        spans = msgspec.json.decode(answer.data, type=Spans)
        assert PROMPT in spans.text
        assert "".join(token.text for token in spans.tokens) == spans.text
        assert all(spans.text[t.start : t.stop] == t.text for t in spans.tokens)
    wrong = msgspec.json.encode(Spanning(chat={"messages": [{"role": "user", "content": 1}]}))
    (answer,) = engine.submit(HttpRequest(SPANS_PATH, wrong)).wait().deltas
    assert answer.status == 400


# Neither echo nor TensorRT-LLM's double has a list of tokens.
@without("echo", "trtllm")
def test_text_that_cannot_fit_is_refused_by_its_characters(engine: Any) -> None:
    sink = engine.ask("a b " * 5_000_000)
    assert isinstance(sink.error, RequestError)
    assert "prompt has 20000000 characters; accepted: at most" in str(sink.error)
    # Its end fits.
    assert engine.ask("a b " * 50_000, truncate_prompt_tokens=8).error is None


def test_a_prompt_that_is_too_long_harms_nobody(engine: Any) -> None:
    other = engine.start(PROMPT)
    sink = engine.ask("one two " * 4000)
    assert isinstance(sink.error, RequestError)
    assert sink.error.field == "prompt"
    assert not sink.deltas
    assert other.wait().error is None


@pytest.mark.parametrize("has_begun", [True, False])
def test_clients_that_leave_free_the_engine(engine: Any, has_begun: bool) -> None:
    earlier = _steps(engine)
    sinks = [engine.start(PROMPT, max_tokens=900, ignore_eos=True) for _ in range(64)]
    if has_begun:
        sinks[0].wait_first()
    for sink in sinks:
        sink.is_gone = True
    errors = [sink.wait().error for sink in sinks]
    assert all(sink.endings == 1 for sink in sinks)
    assert all(isinstance(error, CancelledError) for error in errors)
    wait_for(lambda: engine.running() == 0)
    _assert_it_stands_still(engine)
    if engine.plan.engine == "vllm":
        # To their ends they would take 900.
        assert sum(_steps(engine)) - sum(earlier) < 600


def _steps(engine: Any) -> list[int]:
    return [worker.stats.steps or 0 for worker in engine.service.snapshot().workers]


def _assert_it_stands_still(engine: Any) -> None:
    """Wait until the engine itself has stopped, not only whoever waited for it.

    Only vLLM tells how many steps it has made; of the others `running` is the engine's own word.
    """

    def stands_still() -> bool:
        before = _steps(engine)
        nothing_more(0.3, "an engine without requests makes no step")
        return _steps(engine) == before

    if engine.plan.engine == "vllm":
        assert all(_steps(engine))
        wait_for(stands_still)
    else:
        assert not any(_steps(engine))


def test_the_snapshot_counts_what_ended(engine: Any) -> None:
    before = engine.service.snapshot()
    engine.ask(PROMPT)
    wait_for(lambda: engine.service.snapshot().open == 0)
    after = engine.service.snapshot()
    assert after.generation_tokens - before.generation_tokens == 32
    assert after.ended["length"] - before.ended.get("length", 0) == 1


@pytest.fixture
def start_echo(start: Callable[..., Any]) -> Callable[..., Any]:
    """Start the echo engine with options, and with properties that are none."""

    def begin(others: Mapping[str, Any] = MappingProxyType({}), **options: Any) -> Any:
        named = {f"option.{name}": value for name, value in options.items()}
        return start({"option.rolling_batch": "echo", **others, **named})

    return begin


def test_a_request_that_cannot_be_packed_leaves_nothing_behind(start_echo: Any) -> None:
    with start_echo() as echo:
        with pytest.raises(OverflowError):
            echo.start("p", seed=2**70)
        assert echo.service.snapshot().open == 0
        assert echo.ask("a", max_tokens=1).text == "a"


def test_engine_death_ends_every_stream_and_the_worker_comes_back(start_echo: Any) -> None:
    with start_echo(die_on="die", token_seconds=0.01, migration_timeout=0) as echo:
        others = [echo.start("a b c", max_tokens=4000).wait_first() for _ in range(8)]
        assert isinstance(echo.ask("die").error, EngineDeadError)
        for other in others:
            assert isinstance(other.wait().error, EngineDeadError)
            assert other.endings == 1
            assert not any(delta.ids for delta in other.deltas)
        wait_for(lambda: echo.service.health().is_ready)
        assert echo.ask("a", max_tokens=2).text == "aa"
        assert [w.deaths for w in echo.service.snapshot().workers] == [1]


def test_each_request_ends_once_whatever_happens_while_it_waits(start_echo: Any) -> None:
    options = {"token_seconds": 0.005, "max_rolling_batch_size": 4, "die_on": "die"}
    sinks: list[RecordingSink] = []

    def flood(echo: Harness, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(300):
            sink = RecordingSink()
            sinks.append(sink)
            work = (
                GenerateRequest("a b", Sampling(chance.randrange(1, 9)), n=chance.choice((1, 3))),
            )
            try:
                echo.service.submit(work, sink, Sender(chance.choice("abc")))
            except LmiError as error:
                sink.fail(error)
            sinks[chance.randrange(len(sinks))].is_gone |= chance.random() < 0.2

    with start_echo({"minWorkers": 2, "job_queue_size": 100}, **options) as echo:
        fatal = echo.start("die")
        threads = [threading.Thread(target=flood, args=(echo, seed)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG_SECONDS)
        for sink in sinks:
            sink.wait()
        wait_for(lambda: echo.service.snapshot().open == 0)
        assert [sink.endings for sink in sinks] == [1] * 1200
        assert echo.service.snapshot().waiting == 0
        assert isinstance(fatal.wait().error, EngineDeadError)
        # All places are free again, and their count is right: they can all be taken at once.
        wait_for(lambda: all(worker.is_ready for worker in echo.service.snapshot().workers))
        last = [echo.start("a", max_tokens=2) for _ in range(2 * 4 + 100)]
        assert all(sink.wait().error is None for sink in last)


def test_closing_ends_what_still_runs(start_echo: Any) -> None:
    with start_echo(token_seconds=0.01) as echo:
        sink = echo.start("a b c", max_tokens=4000).wait_first()
        echo.service.close()
        assert isinstance(sink.wait().error, StoppingError | EngineDeadError)
        with pytest.raises(StoppingError):
            echo.start("a")


def test_a_broken_socket_sends_the_request_to_another_worker(start_echo: Any) -> None:
    with start_echo({"minWorkers": 2}) as echo:
        worker = echo.pool.slots[0].worker
        worker.leader.socket.shutdown(socket.SHUT_WR)
        assert [echo.ask("a b", max_tokens=2).text for _ in range(4)] == ["a b"] * 4
        wait_for(lambda: echo.service.snapshot().workers[0].deaths == 1)


def test_an_answer_that_is_too_large_ends_alone(start_echo: Any) -> None:
    with start_echo(max_output_size=1 << 16, token_seconds=0.01) as echo:
        other = echo.start("a", max_tokens=100)
        sink = echo.ask("x" * 3000, stream=False)
        assert isinstance(sink.error, RequestError)
        assert "the answer has" in str(sink.error)
        assert "at most 65536 (option.max_output_size)" in str(sink.error)
        assert sink.endings == 1
        assert other.wait().text == "a" * 100
        wait_for(lambda: echo.running() == 0)
        assert echo.service.snapshot().workers[0].deaths == 0


def test_a_fault_of_our_own_costs_a_workers_requests_and_no_more(
    start_echo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that reads the worker, and the one that starts it again, go on."""
    with start_echo(token_seconds=0.005, migration_timeout=0) as echo:
        pool, faults = echo.pool, [TypeError("a bug"), TypeError("another")]
        hear, start_slot = echo.service.on_messages, pool.start_slot

        def failing_hear(messages: list[Any]) -> None:
            if faults and any(isinstance(each, msg.Output) for each in messages):
                raise faults.pop()
            hear(messages)

        def failing_start(slot: Any) -> None:
            if faults:
                raise faults.pop()
            start_slot(slot)

        monkeypatch.setattr(echo.service, "on_messages", failing_hear)
        monkeypatch.setattr(pool, "start_slot", failing_start)
        error = echo.ask("a b").error
        assert isinstance(error, EngineDeadError)
        assert "TypeError in the stub" in str(error)
        wait_for(lambda: echo.service.health().is_ready)
        assert echo.ask("a", max_tokens=2).text == "aa"
        assert not faults


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "torch.OutOfMemoryError: CUDA out of memory.",
            r"memory is full: lower option\.max_model_len",
        ),
        ("asked with $HF_TOKEN", r"asked with \*\*\*"),
    ],
    ids=["the cause", "no secret"],
)
def test_a_worker_that_does_not_start_is_quoted(
    start_echo: Any, tmp_path: Path, line: str, words: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "{line}"\nexit 1\n')
    python.chmod(0o755)
    options = {"pythonExecutable": python, "env": "HF_TOKEN=not-to-be-seen"}
    with pytest.raises(WorkerStartError, match=words), start_echo(**options):
        pass
