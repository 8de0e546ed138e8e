"""The stub's end of a real socket."""

import socket
from collections.abc import Iterator

import pytest

from lmi_backend.errors import ConnectionLostError, NotSentError, WorkerError
from lmi_backend.generation import Delta
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import encode, set_timeout
from lmi_backend.pool import rank_group as module
from lmi_backend.pool.rank_group import Connection
from tests.support.run.waiting import wait_for

OUTPUT = msg.Output(1, Delta("a", 1))


@pytest.fixture
def pair() -> Iterator[tuple[Connection, socket.socket]]:
    ours, theirs = socket.socketpair()
    connection = Connection(ours, limit=1000)
    with theirs:
        yield connection, theirs
    connection.close()


Pair = tuple[Connection, socket.socket]


def test_before_it_is_ready_silence_is_none(pair: Pair) -> None:
    connection, _ = pair
    assert connection.read() == []


def test_afterwards_silence_is_a_fault(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENCE_SECONDS", 1)
    connection, worker = pair
    connection.expect_beats()
    worker.sendall(encode([OUTPUT]))
    assert connection.read() == [OUTPUT]
    with pytest.raises(WorkerError, match="sent nothing for 1 s"):
        connection.read()


def test_a_worker_that_is_gone_is_said_by_reading(pair: Pair) -> None:
    connection, worker = pair
    worker.close()
    with pytest.raises(ConnectionLostError):
        connection.read()
    assert not connection.is_broken


def test_a_worker_that_does_not_read_is_cut_off(pair: Pair) -> None:
    connection, worker = pair
    set_timeout(connection.socket, socket.SO_SNDTIMEO, 0.05)
    connection.send(b"x" * 10_000_000)
    wait_for(lambda: connection.is_broken)
    with pytest.raises(NotSentError, match="the worker cannot be reached"):
        connection.send(b"x")
    # Half a frame was on its way: it reads to the end and nothing after it.
    while worker.recv(1 << 20):
        pass


def test_more_than_was_agreed_is_refused(pair: Pair) -> None:
    connection, worker = pair
    worker.sendall(encode([msg.Output(1, Delta("x" * 2000, 1))]))
    with pytest.raises(WorkerError):
        connection.read()
