"""A worker that is ready, as the stub sees it: a process, and ranks whose leader answers."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from lmi_backend.engine_config import Identity
from lmi_backend.errors import HTTP_ERROR, ConnectionLostError, NotSentError, WorkerError
from lmi_backend.generation import HttpChunk
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.engine import EngineStats
from lmi_backend.ipc.frames import Frame, FrameDecoder, Outbox, encode, receive, set_timeout
from lmi_backend.pool.process import WorkerSession, describe_exit

POLL_SECONDS: Final = 0.2
SILENCE_SECONDS: Final = 30
"""A worker beats every second; an event loop silent for this long does not come back."""
UNSENT_BYTES: Final = 256 << 20
"""That a worker has not taken; with more it gets no further requests."""

_BEAT_SECONDS = 1
# Rank 0 may miss a killed rank before its socket is seen to close.
_CAUSE_SECONDS: Final = 0.3


class Connection(Outbox):
    """A blocking socket that one thread reads, and to which any thread sends without waiting."""

    def __init__(self, sock: socket.socket, limit: int) -> None:
        super().__init__(sock, "the worker", SILENCE_SECONDS)
        sock.setblocking(True)
        if sock.family != socket.AF_UNIX:
            # Tokens are small and must not wait for more.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder: FrameDecoder[msg.FromWorker] = FrameDecoder(msg.FromWorker, limit=limit)
        self._is_ready = False
        set_timeout(sock, socket.SO_RCVTIMEO, POLL_SECONDS)

    def fileno(self) -> int:
        return self.socket.fileno()

    def expect_beats(self) -> None:
        """Treat silence as a fault from now on."""
        self._is_ready = True
        set_timeout(self.socket, socket.SO_RCVTIMEO, _BEAT_SECONDS)

    def read(self) -> list[msg.FromWorker]:
        """Block for the next messages; before `expect_beats`, return none after a while.

        Raises:
            WorkerError: the worker is gone, silent, or cannot be understood.
        """
        # Second by second: when the whole machine stood still, that is one second to both.
        for _ in range(SILENCE_SECONDS):
            try:
                return receive(self.socket, self._decoder)
            except BlockingIOError:
                if not self._is_ready:
                    return []
            except OSError as error:
                raise ConnectionLostError(f"the worker's socket failed: {error}") from error
        raise WorkerError(f"the worker sent nothing for {SILENCE_SECONDS} s")

    def close(self) -> None:
        super().close()
        self.socket.close()


@dataclass(frozen=True)
class WorkerStats:
    """The stats of a worker since the start of its model."""

    stats: EngineStats
    """What its engine last reported; sums start at 0 when it is restarted."""
    assigned: int
    deaths: int
    is_ready: bool
    problem: str = ""
    """Why it is not ready, or was not last."""
    has_spare: bool = False
    is_wanted: bool = True
    """Whether it has to run now; the load starts and stops those above minWorkers."""
    is_adopted: bool = False
    """Whether another stub has started it, which has died."""


class Worker:
    """A worker that is ready: rank 0 answers, and gets requests alone, or as all ranks do."""

    def __init__(
        self,
        name: str,
        process: WorkerSession,
        connections: Sequence[Connection],
        ready: msg.Ready,
        *,
        shares_all: bool = False,
    ) -> None:
        self.name, self._process, self._connections = name, process, connections
        self.pid = process.pid
        """Process id, mpirun's for a group of ranks; its session has the same."""
        self.capabilities = ready.capabilities
        self.identity = Identity(adapters=ready.adapters)
        """What its answers depend on."""
        self.leader = connections[0]
        self._shares_all = shares_all
        self._order = threading.Lock()
        self._by_file = {each.fileno(): rank for rank, each in enumerate(connections)}
        now = time.monotonic()
        self._heard = dict.fromkeys(range(len(connections)), now)
        for connection in connections:
            connection.expect_beats()
        self.poll, self._followers = select.poll(), select.poll()
        self._launcher = -1
        if len(connections) > 1:
            self._launcher = os.pidfd_open(self.pid)
            for file in (*self._by_file, self._launcher):
                self.poll.register(file, select.POLLIN)
            for follower in connections[1:]:
                self._followers.register(follower, select.POLLIN)

    @property
    def is_broken(self) -> bool:
        return any(connection.is_broken for connection in self._connections)

    @property
    def unsent_bytes(self) -> int:
        """What the rank that is furthest behind has not taken yet."""
        return max(connection.unsent_bytes for connection in self._connections)

    def send_frame(self, frame: Frame) -> None:
        """Send a frame of requests, to whom they concern; never blocks.

        Raises:
            NotSentError: a rank is gone, and none got anything of it.
            ConnectionLostError: a rank is gone.
        """
        if self._shares_all:
            self.send_all(frame)
        else:
            self.leader.send(*frame)

    def send_all(self, frame: Frame) -> None:
        """Send a frame to every rank; all get all frames in the same order."""
        with self._order:
            self.leader.send(*frame)
            try:
                for connection in self._connections[1:]:
                    connection.send(*frame)
            except NotSentError as error:
                raise ConnectionLostError(str(error)) from error

    def read(self) -> list[msg.FromWorker]:
        """Block for the next messages of rank 0.

        Raises:
            WorkerError: a rank is gone, silent, or cannot be understood.
        """
        return [self._redacted(each) if _may_quote(each) else each for each in self._read()]

    def _read(self) -> list[msg.FromWorker]:
        if len(self._connections) == 1:
            return self.leader.read()
        while True:
            ready = [file for file, _ in self.poll.poll(SILENCE_SECONDS * 1000)]
            messages = self._hear(ready)
            if self._launcher in ready:
                raise WorkerError("its launcher, mpirun, exited")
            if any(isinstance(each, msg.Failure) and each.kind == "dead" for each in messages):
                self._look_for_the_cause()
            if messages:
                return messages

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        if self._launcher >= 0:
            os.close(self._launcher)
            self._launcher = -1

    def _look_for_the_cause(self) -> None:
        """Rank 0 says that its engine died: raise WorkerError if that was for want of a rank."""
        end = time.monotonic() + _CAUSE_SECONDS
        while (left := end - time.monotonic()) > 0:
            self._hear([file for file, _ in self._followers.poll(left * 1000)])

    def _hear(self, ready: list[int]) -> list[msg.FromWorker]:
        """Read from the ranks that are ready; return what rank 0 said."""
        lost: list[int] = []
        received: list[msg.FromWorker] = []
        now = time.monotonic()
        for rank in (self._by_file[file] for file in ready if file in self._by_file):
            try:
                messages = self._connections[rank].read()
            except ConnectionLostError:
                lost.append(rank)
            else:
                self._heard[rank] = now
                received += messages if rank == 0 else []
        if lost:
            raise WorkerError(f"lost {_names(lost)}")
        silent = [rank for rank, heard in self._heard.items() if now - heard > SILENCE_SECONDS]
        if silent:
            raise WorkerError(f"{_names(silent)} sent nothing for {SILENCE_SECONDS} s")
        return received

    def note_adapter(self, name: str, digest: str) -> None:
        """Note which files it has of an adapter now; no digest: it has forgotten the adapter."""
        adapters = {**self.identity.adapters, name: digest}
        if not digest:
            del adapters[name]
        # Requests keep the one that they began with.
        self.identity = replace(self.identity, adapters=adapters)

    @property
    def takes_requests(self) -> bool:
        """Whether it can be sent requests: it is there, and reads what it was sent."""
        return not self.is_broken and self.unsent_bytes < UNSENT_BYTES

    def send(self, *messages: msg.ToWorker) -> None:
        self.send_frame((encode(messages),))

    def request_stop(self) -> None:
        with contextlib.suppress(ConnectionLostError):
            self.send_all((encode([msg.Stop()]),))

    def stop(self, seconds: float) -> None:
        try:
            self.request_stop()
            if not self.is_broken:
                self._process.wait(seconds)
        finally:
            self.kill()

    def kill(self) -> None:
        """End it and all it started, at once."""
        self._process.kill()
        self.close()

    def reap(self, error: WorkerError) -> str:
        """End what is left of a dead worker; return how it died, which began with `error`."""
        status = self._process.wait(POLL_SECONDS)
        self.kill()
        if isinstance(error, ConnectionLostError):
            return describe_exit(status)
        return f"was stopped: {error}" if status is None else f"{describe_exit(status)}: {error}"

    def _redacted(self, message: msg.FromWorker) -> msg.FromWorker:
        """Return a message as a client may read it: an error may quote an address with its key."""
        redact = self._process.redact
        match message:
            case msg.Failure(message=text):
                return msgspec.structs.replace(message, message=redact(text))
            case msg.Output(chunk=HttpChunk() as chunk):
                body = redact(chunk.data.decode("utf-8", "surrogateescape"))
                data = body.encode("utf-8", "surrogateescape")
                return msgspec.structs.replace(
                    message, chunk=msgspec.structs.replace(chunk, data=data)
                )
            case _:
                return message


def _may_quote(message: msg.FromWorker) -> bool:
    if isinstance(message, msg.Output):
        return isinstance(message.chunk, HttpChunk) and message.chunk.status >= HTTP_ERROR
    return isinstance(message, msg.Failure)


def _names(ranks: Sequence[int]) -> str:
    word = "rank" if len(ranks) == 1 else "ranks"
    return f"{word} {', '.join(map(str, ranks))}"
