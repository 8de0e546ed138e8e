"""Both sides of a worker's socket prove that they know the token of this start.

The stub sends `Challenge`, the worker `Hello`, the stub `Accepted`. The token itself is never
sent: each end sends an HMAC over what the other has just drawn at random. So neither a recorded
conversation nor a process that listens in the stub's place gets anything of use.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import secrets
import socket
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import msgspec

from lmi_backend import __version__
from lmi_backend.errors import ConnectionLostError, WorkerError
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import FrameDecoder, encode
from lmi_backend.ipc.messages import PROTOCOL
from lmi_backend.printable import printable

if TYPE_CHECKING:
    from lmi_backend.ipc.messages import Hello


_log = logging.getLogger(__name__)


def difference(peer: str, hello: Hello) -> str:
    """Return why a peer, such as `process 12` of a stub, is refused, for the logs of both sides."""
    release = printable(hello.release, 20) or "of another release"
    return (
        f"{peer} is lmi-backend {release} (protocol {hello.protocol}), the model's stub is "
        f"lmi-backend {__version__} (protocol {PROTOCOL}). They do not understand each other: "
        "install one release for both, and start the server and the front end again"
    )


T = TypeVar("T")


HANDSHAKE_SECONDS: Final = 1.0
"""In which a connection must have proved itself; a worker that was too slow tries again."""
FIRST_FRAME_BYTES: Final = 4096
"""Of the largest frame before the proof."""
MOST_PEERS: Final = 64
"""Connections without a proof at one time, besides one for each rank; more end the oldest."""
BACKLOG: Final = 128

_NONCE_BYTES = 16
_TRIES = 20
_PAUSE_SECONDS = 0.5
# A stub answers at once; its machine may stand still for a while.
_ANSWER_SECONDS = 10.0


class Handshakes:
    """The stub's side: lets the ranks of one worker in, all at the same time.

    An unauthenticated peer costs a socket and at most 4 KiB, for a second.

    Args:
        listener: where they connect; it is made non-blocking.
        ranks: how many are awaited; each is let in once.
    """

    def __init__(self, listener: socket.socket, token: str, ranks: int) -> None:
        listener.setblocking(False)
        self._listener, self._key = listener, token.encode()
        self._ranks, self._missing = ranks, set(range(ranks))
        self._loop = asyncio.new_event_loop()
        self._peers: dict[asyncio.Task[None], str] = {}
        """Those that have proved nothing yet, the oldest first, and why they are cut off."""
        self._arrived: list[tuple[int, socket.socket]] = []
        self._has_arrived = asyncio.Event()
        self._refused, self._last = 0, ""
        self._loop.add_reader(listener, self._accept)

    def __enter__(self) -> Handshakes:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.remove_reader(self._listener)
        while self._peers:
            for peer in self._peers:
                peer.cancel()
            self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    @property
    def refusals(self) -> str:
        """How many connections were refused, and why the last one was; empty if none."""
        many = "connection was" if self._refused == 1 else "connections were"
        return f"{self._refused} {many} refused, the last {self._last}" if self._refused else ""

    def turn(self, seconds: float) -> list[tuple[int, socket.socket]]:
        """Wait at most some seconds for ranks; return those that were let in."""
        with contextlib.suppress(asyncio.TimeoutError):
            self._loop.run_until_complete(asyncio.wait_for(self._has_arrived.wait(), seconds))
        self._has_arrived.clear()
        arrived, self._arrived = self._arrived, []
        return arrived

    def _accept(self) -> None:
        try:
            sock, address = self._listener.accept()
        except OSError:
            # Nobody is left, or who came has gone again.
            return
        sock.setblocking(False)
        left = [peer for peer, reason in self._peers.items() if not reason]
        if len(left) >= MOST_PEERS + self._ranks:
            self._cut(left[0], "it had to make room for others")
        peer = self._loop.create_task(self._admit(sock))
        self._peers[peer] = ""
        where = f"from {address[0]}: " if address else ""
        peer.add_done_callback(partial(self._end, sock, where))
        late = f"it proved nothing within {HANDSHAKE_SECONDS:g} s"
        self._loop.call_later(HANDSHAKE_SECONDS, self._cut, peer, late)

    def _cut(self, peer: asyncio.Task[None], reason: str) -> None:
        if peer.cancel():
            self._peers[peer] = reason

    def _end(self, sock: socket.socket, where: str, peer: asyncio.Task[None]) -> None:
        reason = self._peers.pop(peer)
        if not peer.cancelled():
            if (error := peer.exception()) is None:
                return
            reason = str(error)
        sock.close()
        if reason:
            self._refused, self._last = self._refused + 1, f"{where}{reason}"

    async def _admit(self, sock: socket.socket) -> None:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        await self._loop.sock_sendall(sock, encode([msg.Challenge(nonce)]))
        hello = await self._hello_of(sock)
        self._check(hello, nonce)
        accepted = msg.Accepted(proof_of(self._key, "stub", nonce, hello))
        await self._loop.sock_sendall(sock, encode([accepted]))
        self._missing.remove(hello.rank)
        self._arrived.append((hello.rank, sock))
        self._has_arrived.set()

    async def _hello_of(self, sock: socket.socket) -> msg.Hello:
        decoder: FrameDecoder[msg.Hello] = FrameDecoder(msg.Hello, limit=FIRST_FRAME_BYTES)
        messages: list[msg.Hello] = []
        has_rest = True
        while has_rest and not messages:
            try:
                messages = decoder.feed(await self._loop.sock_recv(sock, FIRST_FRAME_BYTES))
            except ConnectionLostError as error:
                raise WorkerError("it closed the connection") from error
            except WorkerError as error:
                # What it sent stays out of the log.
                raise WorkerError("what it sent is no Hello") from error
            has_rest = bool(decoder.rest)
        if len(messages) != 1 or has_rest:
            raise WorkerError("it sent something other than one Hello")
        return messages[0]

    def _check(self, hello: msg.Hello, nonce: bytes) -> None:
        """Raise WorkerError unless it comes from a rank that is awaited."""
        proof = proof_of(self._key, "worker", nonce, hello)
        if hello.protocol != msg.PROTOCOL:
            problem = difference("it", hello)
        elif not hmac.compare_digest(hello.proof, proof):
            problem = "it does not know the token"
        elif not 0 <= hello.rank < self._ranks:
            problem = f"it is rank {hello.rank} of {self._ranks}"
        elif hello.rank not in self._missing:
            problem = f"rank {hello.rank} has connected before"
        else:
            return
        raise WorkerError(problem)


async def join(
    address: str, token: str, rank: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect a worker to its stub: a Unix socket or host:port.

    Raises:
        OSError: nobody listens there.
        WorkerError: the listener does not know the token, or does not let the worker in.
    """
    for _ in range(_TRIES):
        reader, writer = await _connect(address)
        try:
            await asyncio.wait_for(_introduce(reader, writer, token, rank), _ANSWER_SECONDS)
        except (OSError, EOFError, asyncio.TimeoutError) as error:
            # Strangers may have crowded it out, or this machine was too slow.
            _log.info("rank %d: %s refused the handshake: %s", rank, address, error or "no answer")
            writer.close()
            await asyncio.sleep(_PAUSE_SECONDS)
        except WorkerError as error:
            writer.close()
            message = f"the listener at {address} is not the stub of this worker: {error}"
            raise WorkerError(message) from error
        else:
            return reader, writer
    raise WorkerError(f"rank {rank}: {address} refused the handshake {_TRIES} times")


async def _connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if address.startswith("/"):
        return await asyncio.open_unix_connection(address)
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def _introduce(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str, rank: int
) -> None:
    key = token.encode()
    challenge = await _read(reader, msg.Challenge)
    nonce = secrets.token_bytes(_NONCE_BYTES)
    hello = msg.Hello(msg.PROTOCOL, os.getpid(), rank, nonce, release=__version__)
    proof = proof_of(key, "worker", challenge.nonce, hello)
    writer.write(encode([msgspec.structs.replace(hello, proof=proof)]))
    accepted = await _read(reader, msg.Accepted)
    if not hmac.compare_digest(accepted.proof, proof_of(key, "stub", challenge.nonce, hello)):
        raise WorkerError("it does not know the token")


async def _read(reader: asyncio.StreamReader, kind: type[T]) -> T:
    """Read one frame of one message, and no byte after it: that is the session's."""
    decoder: FrameDecoder[T] = FrameDecoder(kind, limit=FIRST_FRAME_BYTES)
    while True:
        if messages := decoder.feed(await reader.readexactly(1)):
            return messages[0]


def proof_of(key: bytes, by: Literal["stub", "worker"], nonce: bytes, hello: msg.Hello) -> bytes:
    """Return what shows that one end knows the key.

    Named by its end, so that it cannot be sent back; over the rank, so that none takes another's.
    """
    data = encode([by, nonce, hello.nonce, hello.rank])
    return hmac.digest(key, data, "sha256")
