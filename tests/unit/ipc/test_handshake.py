"""Who is let in as a rank, over real sockets."""

import asyncio
import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lmi_backend.errors import WorkerError
from lmi_backend.ipc import handshake
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import FrameDecoder, encode
from lmi_backend.ipc.handshake import FIRST_FRAME_BYTES, MOST_PEERS, Handshakes, join
from tests.support.run.waiting import wait_for

TOKEN = "5f" * 16
RANKS = 2


class Stub:
    """The stub's side of a load of two ranks, turned by hand."""

    def __init__(self, listener: socket.socket) -> None:
        name = listener.getsockname()
        self.address = name if isinstance(name, str) else f"{name[0]}:{name[1]}"
        self._name, self._family, self._listener = name, listener.family, listener
        self.handshakes = Handshakes(listener, TOKEN, RANKS)
        self.ranks: dict[int, socket.socket] = {}
        self._stack = contextlib.ExitStack()

    def close(self) -> None:
        self._stack.close()
        for sock in self.ranks.values():
            sock.close()

    def turn_until(self, is_true: Callable[[], bool]) -> None:
        wait_for(lambda: is_true() or self.ranks.update(self.handshakes.turn(0.01)))

    def connect(self) -> "Client":
        sock = self._stack.enter_context(socket.socket(self._family))
        sock.connect(self._name)
        return Client(sock, self)

    def join(self, *ranks: int, token: str = TOKEN, dropped: int = 0) -> list[Any]:
        """Let workers connect, after some connections were lost; return what came of each."""

        async def all_of_them() -> list[Any]:
            joining = (join(self.address, token, rank) for rank in ranks)
            ends = await asyncio.gather(*joining, return_exceptions=True)
            for end in ends:
                if isinstance(end, tuple):
                    end[1].close()
            return ends

        ends: list[Any] = []
        thread = threading.Thread(target=lambda: ends.extend(asyncio.run(all_of_them())))
        thread.start()
        while dropped:
            with contextlib.suppress(BlockingIOError):
                self._listener.accept()[0].close()
                dropped -= 1
        self.turn_until(lambda: not thread.is_alive())
        return ends


class Client:
    """Somebody who connects by hand."""

    def __init__(self, sock: socket.socket, stub: Stub) -> None:
        self.sock, self._stub = sock, stub

    def challenge(self) -> bytes:
        decoder: FrameDecoder[msg.ToWorker] = FrameDecoder(msg.ToWorker, limit=1 << 16)
        self._stub.turn_until(lambda: self._has(socket.MSG_PEEK) > 0)
        (challenge,) = decoder.feed(self.sock.recv(4096))
        assert isinstance(challenge, msg.Challenge)
        return challenge.nonce

    def hello(self, rank: int = 0, token: str = TOKEN, **changed: Any) -> msg.Hello:
        """Return what a rank would say, with some fields changed after the proof was made."""
        message = msg.Hello(msg.PROTOCOL, os.getpid(), rank, b"n" * 16)
        proof = handshake.proof_of(token.encode(), "worker", self.challenge(), message)
        return msgspec.structs.replace(message, **{"proof": proof} | changed)

    def say(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self.sock.sendall(data)

    def _has(self, flags: int) -> int:
        """Return how many bytes have come; 0 if none has, -1 at the end."""
        try:
            return len(self.sock.recv(4096, flags | socket.MSG_DONTWAIT)) or -1
        except BlockingIOError:
            return 0
        except ConnectionError:
            return -1

    def is_closed(self) -> bool:
        while (count := self._has(0)) > 0:
            pass
        return count < 0

    def assert_refused(self, why: str) -> None:
        self._stub.turn_until(self.is_closed)
        assert why in self._stub.handshakes.refusals
        assert not self._stub.ranks.keys() - {0}


@pytest.fixture(params=["unix", "tcp"])
def stub(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stub]:
    family = socket.AF_UNIX if request.param == "unix" else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind(str(tmp_path / "s") if request.param == "unix" else ("127.0.0.1", 0))
        listener.listen(handshake.BACKLOG)
        made = Stub(listener)
        with made.handshakes:
            yield made
        made.close()


def test_the_ranks_of_a_worker_come_in_at_the_same_time(stub: Stub) -> None:
    assert [type(end) for end in stub.join(1, 0)] == [tuple, tuple]
    assert sorted(stub.ranks) == [0, 1]
    assert stub.handshakes.refusals == ""


def test_a_rank_is_heard_where_the_session_begins(stub: Stub) -> None:
    """What either end says right after its proof is not swallowed by the handshake."""
    rank = stub.connect()
    rank.say(encode([rank.hello()]))
    stub.turn_until(lambda: 0 in stub.ranks)
    stub.ranks[0].sendall(encode([msg.Stop()]))
    decoder: FrameDecoder[msg.ToWorker] = FrameDecoder(msg.ToWorker, limit=1 << 16)
    messages: list[msg.ToWorker] = []
    while len(messages) < 2:
        messages += decoder.feed(rank.sock.recv(4096))
    assert [type(each) for each in messages] == [msg.Accepted, msg.Stop]


# What to send after the challenge, and what is said of it.
_BAD: dict[str, tuple[Callable[[Client], bytes], str]] = {
    "random bytes": (lambda client: os.urandom(64) + b"\xff" * 4, "no Hello"),
    "4 GiB announced": (lambda client: b"\xff\xff\xff\xff", "no Hello"),
    "a byte too long": (lambda client: struct.pack("<I", FIRST_FRAME_BYTES + 1), "no Hello"),
    "an empty list": (lambda client: encode([]), "other than one Hello"),
    "another message": (lambda client: encode([msg.StartFailed("x")]), "no Hello"),
    "what LMI's protocol 4 sent": (
        lambda client: encode([["Hello", 4, "token-é", 1, 0]]),
        "no Hello",
    ),
    "another protocol": (
        lambda client: encode([client.hello(protocol=msg.PROTOCOL + 1)]),
        f"protocol {msg.PROTOCOL + 1}",
    ),
    "another token": (lambda client: encode([client.hello(token="a5" * 16)]), "the token"),
    "a token that is not ASCII": (lambda client: encode([client.hello(token="é")]), "the token"),
    "a proof that is text": (lambda client: encode([client.hello(proof="é" * 32)]), "no Hello"),
    "no proof": (lambda client: encode([client.hello(proof=b"")]), "the token"),
    "the proof of another rank": (
        lambda client: encode([msgspec.structs.replace(client.hello(1), rank=0)]),
        "the token",
    ),
    "a rank below 0": (lambda client: encode([client.hello(-1)]), "rank -1 of 2"),
    "a rank too many": (lambda client: encode([client.hello(2)]), "rank 2 of 2"),
    "a second Hello": (lambda client: 2 * encode([client.hello()]), "other than one Hello"),
    "a byte after it": (lambda client: encode([client.hello()]) + b"\0", "other than one Hello"),
}


@pytest.mark.parametrize("name", _BAD)
def test_a_stranger_is_refused_and_the_ranks_come_in(stub: Stub, name: str) -> None:
    make, why = _BAD[name]
    client = stub.connect()
    client.say(make(client))
    client.assert_refused(why)
    stub.join(0, 1)
    assert sorted(stub.ranks) == [0, 1]


def test_one_that_hangs_up_is_forgotten(stub: Stub) -> None:
    client = stub.connect()
    client.challenge()
    client.sock.close()
    stub.turn_until(lambda: "it closed the connection" in stub.handshakes.refusals)


def test_who_is_silent_has_a_second_and_so_has_who_dribbles(stub: Stub) -> None:
    silent, dribbling = stub.connect(), stub.connect()
    frame = iter(encode([dribbling.hello()])[:-1])

    def both_are_closed() -> bool:
        if (byte := next(frame, None)) is not None:
            dribbling.say(bytes([byte]))
        return silent.is_closed() and dribbling.is_closed()

    stub.turn_until(both_are_closed)
    assert "proved nothing within 1 s" in stub.handshakes.refusals
    assert stub.handshakes.refusals.startswith("2 connections")


def test_of_too_many_strangers_the_oldest_go(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "HANDSHAKE_SECONDS", 60.0)
    extra = 10
    clients = [stub.connect() for _ in range(MOST_PEERS + RANKS + extra)]
    left = [True] * extra + [False] * (MOST_PEERS + RANKS)
    clients[-1].challenge()
    stub.turn_until(lambda: [client.is_closed() for client in clients] == left)
    assert stub.handshakes.refusals.startswith(f"{extra} connections")
    assert "make room" in stub.handshakes.refusals


def test_of_two_that_say_the_same_rank_the_first_stays(stub: Stub) -> None:
    first, second = stub.connect(), stub.connect()
    first.say(encode([first.hello(0)]))
    stub.turn_until(lambda: 0 in stub.ranks)
    kept = stub.ranks[0]
    second.say(encode([second.hello(0)]))
    second.assert_refused("rank 0 has connected before")
    assert stub.ranks == {0: kept}
    assert not first.is_closed()


def test_a_recorded_hello_is_of_no_use_again(stub: Stub) -> None:
    first = stub.connect()
    recorded = encode([first.hello(1)])
    again = stub.connect()
    again.challenge()
    again.say(recorded)
    again.assert_refused("does not know the token")


def test_a_rank_with_another_token_gives_up(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "_TRIES", 2)
    monkeypatch.setattr(handshake, "_PAUSE_SECONDS", 0.0)
    (end,) = stub.join(0, token="é")
    assert isinstance(end, WorkerError)
    assert "refused the handshake 2 times" in str(end)


def test_a_rank_that_was_dropped_tries_again(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "_PAUSE_SECONDS", 0.0)
    (end,) = stub.join(0, dropped=3)
    assert isinstance(end, tuple)


@pytest.mark.parametrize("answer", ["nonsense", "reflected", "4 GiB announced", "a Stop"])
async def test_a_worker_tells_an_impostor_nothing_and_leaves(answer: str) -> None:
    heard = bytearray()

    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(encode([msg.Challenge(b"c" * 16)]))
        decoder: FrameDecoder[msg.Hello] = FrameDecoder(msg.Hello, limit=1 << 16)
        messages: list[msg.Hello] = []
        while not messages:
            data = await reader.read(4096)
            heard.extend(data)
            messages = decoder.feed(data)
        answers = {
            "nonsense": encode([msg.Accepted(b"x" * 32)]),
            "reflected": encode([msg.Accepted(messages[0].proof)]),
            "4 GiB announced": b"\xff\xff\xff\xff",
            "a Stop": encode([msg.Stop()]),
        }
        writer.write(answers[answer])
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(impostor, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(WorkerError, match="is not the stub of this worker"):
            await join(f"127.0.0.1:{port}", TOKEN, 0)
    assert heard
    assert TOKEN.encode() not in heard
    assert bytes.fromhex(TOKEN) not in heard


async def test_a_worker_says_that_nobody_listens() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        with pytest.raises(OSError, match="Connect call failed"):
            await join(f"127.0.0.1:{probe.getsockname()[1]}", TOKEN, 0)
