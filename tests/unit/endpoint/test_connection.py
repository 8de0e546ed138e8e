"""What clients of an endpoint are sent: all of it, in its order, and nobody waits for one."""

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from lmi_backend.endpoint import connection
from lmi_backend.endpoint.backlog import UNREAD, UNREAD_BYTES
from lmi_backend.endpoint.connection import ClientConnection, ClientSink
from lmi_backend.generation import HttpChunk
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import FrameDecoder, receive
from tests.support.run.waiting import HANG_SECONDS

THREADS = 4
MESSAGES = 500
Pair = tuple[ClientConnection, socket.socket]
# All of them are more than a socket takes before its other end reads.
SIZE = 4096


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(HANG_SECONDS)
    client = ClientConnection(ours, _nothing, _nothing)
    others = set(threading.enumerate())
    yield client, theirs
    client.close()
    for writing in set(threading.enumerate()) - others:
        writing.join(HANG_SECONDS)
        assert not writing.is_alive()
    ours.close()
    theirs.close()


def _nothing(*_: object) -> None:
    """Hear of nothing."""


def _say(client: ClientConnection, thread: int) -> None:
    for number in range(MESSAGES):
        client.store([msg.Output(thread, HttpChunk(b"%d " % number + b"x" * SIZE))])
        client.flush()


def test_nobody_waits_for_a_client_that_does_not_read(pair: Pair) -> None:
    client, theirs = pair
    threads = [threading.Thread(target=_say, args=(client, each)) for each in range(THREADS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(HANG_SECONDS)
    assert not any(each.is_alive() for each in threads)
    decoder: FrameDecoder[Any] = FrameDecoder(msg.Output, limit=1 << 30)
    seen: dict[int, list[int]] = {each: [] for each in range(THREADS)}
    while sum(map(len, seen.values())) < THREADS * MESSAGES:
        for message in receive(theirs, decoder):
            seen[message.id].append(int(message.chunk.data.split()[0]))
    assert seen == {each: list(range(MESSAGES)) for each in range(THREADS)}
    client.finish(10)
    # Now that it reads again, who has something to say writes it.
    client.put(msg.Output(0, HttpChunk(b"last")))
    assert [message.chunk.data for message in receive(theirs, decoder)] == [b"last"]


def test_a_client_that_reads_costs_no_other_thread(pair: Pair) -> None:
    client, theirs = pair
    decoder: FrameDecoder[Any] = FrameDecoder(msg.Output, limit=1 << 30)
    threads = threading.enumerate()
    client.put(msg.Output(0, HttpChunk(b"at once")))
    (message,) = receive(theirs, decoder)
    assert threading.enumerate() == threads
    assert message.chunk.data == b"at once"


def test_a_client_for_which_no_thread_can_be_had_is_let_go(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    while not pair[0].is_gone:
        pair[0].put(msg.Output(0, HttpChunk(b"x" * SIZE)))


def test_one_that_has_left_is_let_go(pair: Pair) -> None:
    client, theirs = pair
    theirs.close()
    client.put(msg.Output(0, HttpChunk(b"to nobody")))
    assert client.is_gone


def test_a_reader_that_reads_may_be_behind(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes bytes while far more comes than may wait for one that stands still."""
    monkeypatch.setattr(connection, "STILL_SECONDS", HANG_SECONDS)
    client, theirs = pair
    sink = ClientSink(client, 0)
    for _ in range(32):
        sink.send([HttpChunk(b"x" * (1 << 20))], is_last=False)
    assert not sink.is_cancelled()
    decoder: FrameDecoder[Any] = FrameDecoder(msg.Output, limit=1 << 23)
    seen = 0
    while seen < 32 << 20:
        seen += sum(len(each.chunk.data) for each in receive(theirs, decoder))


def test_what_is_not_read_is_bounded(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer ends of which too much waits; another, however much of it comes, continues."""
    monkeypatch.setattr(connection, "STILL_SECONDS", 0.0)
    client, theirs = pair
    sinks = [ClientSink(client, number) for number in range(2)]
    for _ in range(300):
        sinks[0].send([HttpChunk(b"x" * 200_000)], is_last=False)
        sinks[1].send([HttpChunk(b"y" * 20_000)], is_last=False)
        assert client.backlog.memory < 3 * UNREAD_BYTES
    assert sinks[0].is_cancelled()
    assert not sinks[1].is_cancelled()
    client.put(msg.Output(2, HttpChunk(b"last")))
    decoder: FrameDecoder[Any] = FrameDecoder(msg.ToClient, limit=1 << 21)
    seen: list[Any] = []
    while not seen or seen[-1].id != 2:
        seen += receive(theirs, decoder)
    assert sum(each.id == 1 for each in seen) == 300
    failures = [each for each in seen if isinstance(each, msg.Failure)]
    assert {(each.id, each.kind, each.message) for each in failures} == {(0, "engine", UNREAD)}
    assert (
        sum(len(each.chunk.data) for each in seen if each.id == 0 and each not in failures) < 2**24
    )
