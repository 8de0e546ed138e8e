"""How much another process's pairs of sockets hold."""

import errno
import os
import socket
import subprocess
import sys

import pytest

from lmi_backend.supervisor import send_buffers
from lmi_backend.supervisor.send_buffers import socket_pairs, widen_send_buffers

# Says how many messages go in, once before and once after a line on its stdin.
_SENDER = """
import socket, sys

pairs = [socket.socketpair() for _ in "ab"]
others = [socket.socket(), socket.socketpair(type=socket.SOCK_DGRAM)]
for _, end in pairs:
    end.setblocking(False)
    count = 0
    try:
        while True:
            end.send(bytes(24))
            count += 1
    except BlockingIOError:
        print(count, flush=True)
    sys.stdin.readline()
"""


def test_many_more_responses_can_wait() -> None:
    command = [sys.executable, "-c", _SENDER]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as sender:
        assert sender.stdin is not None
        assert sender.stdout is not None
        before = int(sender.stdout.readline())
        assert len(list(socket_pairs(sender.pid))) == 4
        widen_send_buffers(sender.pid)
        sender.stdin.write("\n")
        sender.stdin.flush()
        after = int(sender.stdout.readline())
        sender.stdin.close()
    assert after > 1.5 * before


def test_a_kernel_that_forbids_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # No container here, so no seccomp profile: a system call that does not exist.
    monkeypatch.setattr(send_buffers, "_PIDFD_GETFD", 100_000)
    one, other = socket.socketpair()
    with one, other, pytest.raises(OSError, match="pidfd_getfd: ") as caught:
        widen_send_buffers(os.getpid())
    assert caught.value.errno == errno.ENOSYS


def test_too_little_room_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # What a process without rights gets where net.core.wmem_max is Linux's old default.
    monkeypatch.setattr(send_buffers, "_BYTES", 212992)
    one, other = socket.socketpair()
    with one, other, pytest.raises(PermissionError, match=r"wmem_max allows only 425984 bytes"):
        widen_send_buffers(os.getpid())
