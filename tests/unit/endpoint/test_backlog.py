"""What waits for a client that does not keep up: how much, what is too much, what leaves first."""

import pytest

from lmi_backend.endpoint.backlog import UNREAD_BYTES, UNREAD_BYTES_IN_ALL, Backlog
from lmi_backend.generation import Delta, HttpChunk
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.events import append_event, outputs_of
from lmi_backend.tokenization import ID_BYTES

LARGE = b"x" * (UNREAD_BYTES + 1)
ID = b"\0" * ID_BYTES
EVENTS = msg.Events([1, 2, 1], [LARGE, b"two", b"more"], [ID, ID, ID])


def _unread(*messages: msg.ToClient, most: int = UNREAD_BYTES_IN_ALL) -> set[int]:
    return Backlog().count(messages, most)


def _counted(*messages: msg.ToClient) -> Backlog:
    backlog = Backlog()
    backlog.messages += messages
    backlog.count(messages, UNREAD_BYTES_IN_ALL)
    return backlog


def test_an_answer_is_unread_when_more_comes_after_too_much() -> None:
    first = msg.Output(1, HttpChunk(LARGE))
    assert _unread(first) == set()
    assert _unread(first, msg.Output(2, HttpChunk(b"a"))) == set()
    assert _unread(first, msg.Output(1, HttpChunk(b"a"))) == {1}
    assert _unread(msg.Output(3, Delta("y" * len(LARGE))), msg.Output(3, Delta("y"))) == {3}
    assert _unread(EVENTS) == {1}


def test_an_answer_whose_reader_reads_may_be_large() -> None:
    messages = [msg.Output(1, HttpChunk(LARGE)) for _ in range(8)]
    backlog = Backlog()
    assert backlog.count(messages, UNREAD_BYTES_IN_ALL, is_still=False) == set()
    assert backlog.count(messages[:1], UNREAD_BYTES_IN_ALL) == {1}


def test_the_owner_of_most_pays_first() -> None:
    messages = [msg.Output(number, HttpChunk(b"x" * 10_000)) for number in range(9)]
    messages.append(msg.Output(9, HttpChunk(b"y" * 30_000)))
    ended = Backlog().count(messages, 100_000, lambda number: "few" if number == 9 else "many")
    assert 9 not in ended
    assert len(ended) >= 2


def test_of_too_much_in_all_the_largest_are_ended() -> None:
    sizes = {1: 10_000, 2: 60_000, 3: 20_000, 4: 50_000}
    messages = [msg.Output(number, HttpChunk(b"x" * size)) for number, size in sizes.items()]
    assert _unread(*messages, most=200_000) == set()
    # So much that the next few bytes do not end another.
    assert _unread(*messages, most=100_000) == {2, 4}


@pytest.mark.parametrize("rest", [0, 9], ids=["taken out", "left out in its turn"])
def test_only_the_dropped_answers_chunks_are_left_out(rest: int) -> None:
    welcome = msg.Done(0)
    failure = msg.Failure(1, "engine", "what ends it is kept")
    others = [msg.Output(3, HttpChunk(LARGE)) for _ in range(rest)]
    backlog = _counted(EVENTS, welcome, msg.Output(1, Delta("a")), failure, *others)
    backlog.drop({1})
    assert (len(backlog.messages) == 3) == (rest == 0)
    sent: list[msg.ToClient] = []
    while frame := backlog.next_frame():
        sent += frame
    assert sent == [msg.Events([2], [b"two"], [ID]), welcome, failure, *others]
    assert backlog.memory == 0


def test_of_deltas_in_columns_those_of_dropped_answers_are_left_out() -> None:
    messages: list[msg.ToClient] = []
    for number in (1, 2, 1):
        append_event(messages, number, Delta("a", 1, ids=ID))
    backlog = _counted(*messages)
    backlog.drop({1})
    assert [outputs for each in backlog.next_frame() for outputs in outputs_of(each)] == [  # type: ignore[arg-type]
        msg.Output(2, Delta("a", 1, ids=ID))
    ]
    assert backlog.memory == 0


def test_a_frame_takes_about_a_mebibyte() -> None:
    messages = [msg.Output(each, HttpChunk(b"x" * 400_000)) for each in range(5)]
    backlog = _counted(EVENTS, *messages)
    assert [len(backlog.next_frame()) for _ in range(4)] == [1, 3, 2, 0]


def test_what_is_counted_is_what_waits() -> None:
    backlog = Backlog()
    for number in range(200):
        message = msg.Output(number % 3, HttpChunk(b"x" * 100_000))
        backlog.messages.append(message)
        backlog.count([message], UNREAD_BYTES_IN_ALL)
    backlog.drop({2})
    while backlog.next_frame():
        kept = sum(each.chunk.memory for each in backlog.messages)  # type: ignore[union-attr]
        assert backlog.memory == kept
