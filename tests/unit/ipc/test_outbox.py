"""Frames to a process that may not read."""

import socket
import threading
from collections.abc import Iterator

import pytest

from lmi_backend.errors import NotSentError
from lmi_backend.ipc.frames import Outbox
from tests.support.run.waiting import HANG_SECONDS, wait_for

SIZE = 1 << 20
"""More than a socket takes before its other end reads."""
Pair = tuple[Outbox, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(HANG_SECONDS)
    outbox = Outbox(ours, "the worker", 30)
    with ours, theirs:
        yield outbox, theirs
        outbox.close()
        if outbox.writer is not None:
            outbox.writer.join(HANG_SECONDS)
            assert not outbox.writer.is_alive()


def _read(theirs: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size and (more := theirs.recv(SIZE)):
        data += more
    return bytes(data)


def test_what_the_socket_takes_leaves_without_a_thread(pair: Pair) -> None:
    outbox, theirs = pair
    outbox.send(b"now")
    assert _read(theirs, 3) == b"now"
    assert outbox.writer is None


def test_who_sends_does_not_wait_for_one_that_does_not_read(pair: Pair) -> None:
    outbox, theirs = pair
    frames = [bytes([number]) * SIZE for number in range(20)]
    # Nothing is read yet: a send that waits would never return.
    for frame in frames:
        outbox.send(frame)
    assert outbox.unsent_bytes > 10 * SIZE
    assert _read(theirs, 20 * SIZE) == b"".join(frames)
    wait_for(lambda: outbox.unsent_bytes == 0)
    # Now that it reads again, who sends writes it.
    outbox.send(b"last")
    assert _read(theirs, 4) == b"last"


def test_frames_of_several_threads_are_not_mixed(pair: Pair) -> None:
    outbox, theirs = pair
    sizes = [1, 70_000, SIZE]

    def send(name: int) -> None:
        for size in sizes:
            outbox.send(bytes([name]) * size)

    threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    data = _read(theirs, 4 * sum(sizes))
    for thread in threads:
        thread.join(HANG_SECONDS)
    runs: dict[int, list[int]] = {name: [] for name in range(4)}
    while data:
        name = data[0]
        length = len(data) - len(data.lstrip(bytes([name])))
        runs[name].append(length)
        data = data[length:]
    # Frames of one thread that met are one run here; no frame was cut.
    assert all(sum(each) == sum(sizes) for each in runs.values())
    assert all(length in _sums(sizes) for each in runs.values() for length in each)


def _sums(sizes: list[int]) -> set[int]:
    return {sum(sizes[start:end]) for start in range(3) for end in range(start + 1, 4)}


def test_one_that_has_gone_is_said(pair: Pair) -> None:
    outbox, theirs = pair
    outbox.send(b"x" * SIZE)
    theirs.close()
    wait_for(lambda: outbox.is_broken)
    assert outbox.unsent_bytes == 0
    with pytest.raises(NotSentError, match="the worker cannot be reached"):
        outbox.send(b"x")


def test_a_frame_that_was_sent_in_part_is_not_sent_again_after_a_fault(
    pair: Pair, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox, theirs = pair

    class Faulty:
        """A socket that fails in a way nobody expects, once something was sent."""

        def sendmsg(self, pieces: list[bytes], ancillary: list[object], flags: int) -> int:
            return 1

        def sendall(self, data: bytes) -> None:
            raise TypeError("a bug")

        def shutdown(self, how: int) -> None:
            theirs.close()

    monkeypatch.setattr("lmi_backend.threads.PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(outbox, "socket", Faulty())
    outbox.send(b"xy")
    wait_for(lambda: outbox.is_broken)
    wait_for(lambda: "lmi-outbox" in caplog.text)
    assert outbox.unsent_bytes == 0
