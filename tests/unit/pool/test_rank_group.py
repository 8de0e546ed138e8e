"""Ranks as the stub hears them, over real sockets."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.errors import WorkerError
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.engine import Capabilities, EngineStats
from lmi_backend.ipc.frames import encode
from lmi_backend.pool.rank_group import Connection, Worker

BEAT = encode([msg.Heartbeat(EngineStats())])
TOKEN = encode([msg.Failure(1, "engine", "said by rank 0")])
DEATH = encode([msg.Failure(1, "dead", "the engine core died")])


class Group:
    """Three ranks; this process plays their launcher, and their ends of the sockets are ours."""

    def __init__(self, stack: ExitStack, *, shares_all: bool = False) -> None:
        pairs = [socket.socketpair() for _ in range(3)]
        self.ends = [stack.enter_context(end) for _, end in pairs]
        connections = [Connection(stub, 1 << 20) for stub, _ in pairs]
        process: Any = SimpleNamespace(pid=os.getpid(), redact=str)
        ready = msg.Ready(Capabilities("echo", "1", 0))
        self.ranks = Worker("m/0", process, connections, ready, shares_all=shares_all)
        stack.callback(self.ranks.close)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def test_only_rank_0_is_heard(stack: ExitStack) -> None:
    group = Group(stack)
    for end in group.ends[1:]:
        end.sendall(BEAT + TOKEN)
    group.ends[0].sendall(TOKEN)
    assert [each.message for each in group.ranks.read()] == ["said by rank 0"]  # type: ignore[union-attr]


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_lost_rank_is_named(stack: ExitStack, lost: int) -> None:
    group = Group(stack)
    group.ends[lost].close()
    with pytest.raises(WorkerError, match=f"lost rank {lost}$"):
        group.ranks.read()


def test_several_that_are_lost_at_once_are_all_named(stack: ExitStack) -> None:
    group = Group(stack)
    group.ends[1].close()
    group.ends[2].close()
    with pytest.raises(WorkerError, match=r"lost ranks 1, 2$"):
        group.ranks.read()


def test_the_rank_is_named_though_rank_0_missed_it_first(stack: ExitStack) -> None:
    group = Group(stack)
    group.ends[0].sendall(DEATH)
    group.ranks.poll.poll(1000)
    group.ends[2].close()
    with pytest.raises(WorkerError, match=r"lost rank 2$"):
        group.ranks.read()


def test_a_death_that_is_rank_0s_own_is_handed_on(stack: ExitStack) -> None:
    group = Group(stack)
    group.ends[0].sendall(DEATH)
    group.ends[1].sendall(BEAT)
    (message,) = group.ranks.read()
    assert isinstance(message, msg.Failure)
    assert message.kind == "dead"


@pytest.mark.parametrize("shares_all", [True, False])
def test_requests_go_to_whom_they_concern(stack: ExitStack, shares_all: bool) -> None:
    group = Group(stack, shares_all=shares_all)
    group.ranks.send_frame((b"frame",))
    for end in group.ends:
        end.settimeout(0.05)
    assert group.ends[0].recv(9) == b"frame"
    for end in group.ends[1:]:
        if shares_all:
            assert end.recv(9) == b"frame"
        else:
            with pytest.raises(TimeoutError):
                end.recv(9)
