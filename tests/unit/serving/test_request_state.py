"""What waits to be sent of one request."""

from lmi_backend.errors import EngineError
from lmi_backend.generation import Delta, HttpChunk
from lmi_backend.serving.request_state import outcome_of
from tests.support.doubles.service_bench import state_of


def test_chunks_of_one_answer_share_a_response_and_those_of_two_do_not() -> None:
    request = state_of(width=2, n=2)
    for chunk in (Delta("a", 1), Delta("x", 1, index=1), Delta("b", 1)):
        request.add(chunk)
    chunks, error = request.take()
    assert [(chunk.index, chunk.text, chunk.num_tokens) for chunk in chunks] == [  # type: ignore[union-attr]
        (0, "ab", 2),
        (1, "x", 1),
    ]
    assert error is None
    assert not request.has_pending


def test_it_is_complete_when_every_answer_is() -> None:
    request = state_of(width=2, n=2)
    request.add(Delta("a", 1, "stop"))
    assert not request.is_complete
    request.add(Delta("b", 1, "length", index=1))
    assert request.is_complete
    assert request.has_pending


def test_parts_of_a_body_are_joined_too() -> None:
    request = state_of()
    request.add(HttpChunk(b"a", headers={"x": "1"}))
    request.add(HttpChunk(b"b", is_last=True))
    ((chunk,), _) = request.take()
    assert chunk == HttpChunk(b"ab", is_last=True, headers={"x": "1"})
    assert request.is_complete


def test_what_nobody_wants_any_more_is_dropped_and_the_error_is_not() -> None:
    request = state_of()
    request.add(Delta("a", 1))
    request.error = error = EngineError("why")
    request.drop()
    assert request.take() == ([], error)


def test_the_outcome_of_a_body_stands_at_the_end_of_its_answer() -> None:
    error = b'data: {"error": {"message": "x"}}\n\ndata: [DONE]\n\n'
    long = b'{"choices": [{"text": "\\"x", "finish_reason": "length"}]}'
    ends = (b"data: [DONE]\n\n", 200), (error, 200), (b'{"code": 424}', 424), (long, 200)
    outcomes = [outcome_of(HttpChunk(data, is_last=True, status=status)) for data, status in ends]
    assert outcomes == ["stop", "error", "error", "length"]
