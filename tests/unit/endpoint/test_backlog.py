"""What waits for a client that does not keep up: how much, what is too much, what leaves first."""

from lmi_backend.endpoint.backlog import UNREAD_BYTES, memory_of, next_frame, unread, without
from lmi_backend.generation import Delta, HttpChunk
from lmi_backend.ipc import messages as msg
from lmi_backend.token_ids import ID_BYTES

LARGE = b"x" * (UNREAD_BYTES + 1)
ID = b"\0" * ID_BYTES
EVENTS = msg.Events([1, 2, 1], [LARGE, b"two", b"more"], [ID, ID, ID])


def test_an_answer_is_unread_when_more_comes_after_too_much() -> None:
    first = msg.HttpOutput(1, HttpChunk(LARGE))
    assert unread([first]) == set()
    assert unread([first, msg.HttpOutput(2, HttpChunk(b"a"))]) == set()
    assert unread([first, msg.HttpOutput(1, HttpChunk(b"a"))]) == {1}
    assert unread([msg.Output(3, Delta("y" * len(LARGE))), msg.Output(3, Delta("y"))]) == {3}
    assert unread([EVENTS]) == {1}


def test_only_the_answers_chunks_are_left_out() -> None:
    welcome = msg.Drained(0)
    failure = msg.Failure(1, "engine", "what ends it is kept")
    kept = without([EVENTS, welcome, msg.Output(1, Delta("a")), failure], {1})
    assert kept == [msg.Events([2], [b"two"], [ID]), welcome, failure]


def test_a_frame_takes_about_a_mebibyte() -> None:
    messages = [msg.HttpOutput(each, HttpChunk(b"x" * 400_000)) for each in range(9)]
    assert next_frame(messages) == 3
    assert next_frame(messages[:2]) == 2
    assert next_frame([EVENTS, *messages]) == 1
    assert memory_of([]) == 0
