"""How the chunks of one body's answer leave, and how their tokens are counted."""

from collections.abc import Iterable
from typing import Any

import pytest

from lmi_backend.engines.vllm import images
from lmi_backend.engines.vllm.bodies import BodyAnswer, Counted
from lmi_backend.generation import HttpChunk
from tests.unit.engines.vllm.vllm_engine import AsyncLLM, Sink
from tests.unit.engines.vllm.vllm_parts import PROMPT, CompletionOutput, Kind, Params, RequestOutput

pytestmark = pytest.mark.usefixtures("vllm")


def output(*answers: Iterable[int], is_over: bool = False) -> RequestOutput:
    made = [CompletionOutput(index, "", [*ids]) for index, ids in enumerate(answers)]
    return RequestOutput("a", None, PROMPT, None, made, is_over)


def answered(params: Params | None = None, **more: Any) -> tuple[BodyAnswer, Counted, Sink]:
    """Return the answer to a body, with one call of the engine."""
    sink, engine = Sink(), AsyncLLM()
    answer = BodyAnswer(sink, engine, sends_ids=True, **more)
    answer.num_calls = 1
    return answer, Counted(engine, answer, params or Params()), sink


@pytest.mark.parametrize("kind", [Kind.CUMULATIVE, Kind.DELTA])
def test_outputs_that_tell_all_so_far_are_counted_once(kind: Kind) -> None:
    answer, counted, _ = answered(Params(n=2, output_kind=kind))
    counted.count(output([65], [65]))
    counted.count(output([65, 66], [65]))
    assert answer.generated_tokens == (3 if kind == Kind.CUMULATIVE else 5)
    # An answer that could not resume sends no ids.
    assert answer.ids == b""


def test_the_servers_words_after_what_was_written_here_count_no_token_twice() -> None:
    answer, _, sink = answered()
    answer.own.take(HttpChunk(b"a", num_tokens=2))
    # One more token was generated, of which no chunk has told.
    answer.generated_tokens = 3
    answer.take(HttpChunk(b"error"))
    answer.take(HttpChunk(is_last=True))
    assert [each.num_tokens for each in sink.taken] == [2, 1, 0]


def test_nothing_is_sent_of_what_a_dead_engine_or_refused_media_have_the_server_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer, _, sink = answered()
    with monkeypatch.context() as patch:
        patch.setattr(images, "is_refused", lambda: True)
        answer.take(HttpChunk(b"no room"))
    assert not answer.is_cut
    answer.engine.errored = True
    answer.take(HttpChunk(b"error"))
    assert answer.is_cut
    assert sink.taken == []


def waiting() -> tuple[BodyAnswer, Counted, Sink]:
    """Return an answer of which nothing leaves before the engine has given an output."""
    answer, counted, sink = answered()
    answer.waits = True
    answer.begin(HttpChunk(headers={"content-type": "text/event-stream"}))
    answer.take(HttpChunk(b"created "))
    assert sink.taken == []
    return answer, counted, sink


def test_what_comes_before_the_engines_first_output_leaves_with_the_next() -> None:
    answer, counted, sink = waiting()
    counted.count(output([65]))
    answer.take(HttpChunk(b"a"))
    assert [each.data for each in sink.taken] == [b"created a"]
    assert not answer.refuse(ValueError("too late"))


def test_what_keeps_a_connection_alive_leaves_at_once() -> None:
    answer, _, sink = waiting()
    answer.take(HttpChunk(b": alive\n\n"))
    assert [each.data for each in sink.taken] == [b"created : alive\n\n"]


def test_a_stream_that_the_engine_refuses_has_the_status_of_that() -> None:
    answer, _, sink = waiting()
    assert answer.refuse(ValueError("wrong"))
    answer.take(HttpChunk(b"the server's words", is_last=True))
    (chunk,) = sink.taken
    assert (chunk.status, chunk.is_last) == (400, True)
    assert b'"wrong"' in chunk.data


def test_an_answer_that_the_client_may_ask_for_again_is_an_error_of_ours() -> None:
    answer, _, sink = answered()
    answer.take(HttpChunk(b'{"error": {"message": "full"}}', is_last=True, status=503))
    assert sink.taken == []
    assert answer.refusal is not None
    assert (str(answer.refusal), answer.refusal.status, answer.refusal.retryable) == (
        "full", 503, True
    )  # fmt: skip
