"""Widen the buffers of the responses that wait for Triton's HTTP threads.

tritonserver hands each response of `/generate` and `/infer` to the thread of its connection through
a pair of sockets. It does not check that the write succeeded (`evthr_defer` of libevhtp, called by
src/http_server.cc). With Linux's defaults 278 responses fit. When that thread gets no core for a
while, the next ones are lost: a chunk of an answer, its status line, or its last one. Its client
then waits for ever. libevhtp gives most connections to the first thread, so more threads are no
help.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ADVICE: Final = "sysctl -w net.core.wmem_default=16777216, before tritonserver starts"
ENOUGH: Final = 1 << 22
"""Bytes that have to fit. A response takes 768 of them while it waits."""
_BYTES: Final = 1 << 24
_PIDFD_GETFD: Final = 438  # The same on every architecture; Python has no name for it.
_SO_SNDBUFFORCE: Final = 32


def widen_send_buffers(server: int) -> None:
    """Let many more responses wait in a running tritonserver.

    Args:
        server: its process id. It must be a child of this process, or one that we may trace.

    Raises:
        OSError: the kernel, or a container's seccomp profile, does not let us.
    """
    for end in socket_pairs(server):
        try:
            end.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _BYTES)
        except PermissionError:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BYTES)
        if (size := end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)) < ENOUGH:
            # The second way gives a process without CAP_NET_ADMIN no more than twice that.
            raise PermissionError(errno.EPERM, f"net.core.wmem_max allows only {size} bytes")


def socket_pairs(process: int) -> Iterator[socket.socket]:
    """Yield each end of a process's pairs of stream sockets, open until the next one."""
    return filter(_is_of_a_pair, _sockets(process))


def _sockets(process: int) -> Iterator[socket.socket]:
    descriptors = [int(p.name) for p in Path(f"/proc/{process}/fd").iterdir() if _is_socket(p)]
    handle = os.pidfd_open(process)
    try:
        for one in filter(None, (_copy(handle, descriptor) for descriptor in descriptors)):
            with one:
                yield one
    finally:
        os.close(handle)


def _is_of_a_pair(one: socket.socket) -> bool:
    is_local = (one.family, one.type) == (socket.AF_UNIX, socket.SOCK_STREAM)
    return is_local and not one.getsockname()


def _is_socket(path: Path) -> bool:
    try:
        return os.readlink(path).startswith("socket:")
    except FileNotFoundError:  # It was closed meanwhile.
        return False


def _copy(handle: int, descriptor: int) -> socket.socket | None:
    """Return a socket of another process in this one; nothing if it was closed meanwhile."""
    libc = ctypes.CDLL(None, use_errno=True)
    ours = libc.syscall(_PIDFD_GETFD, handle, descriptor, 0)
    if ours >= 0:
        return socket.socket(fileno=ours)
    error = ctypes.get_errno()
    if error == errno.EBADF:
        return None
    raise OSError(error, f"pidfd_getfd: {os.strerror(error)}")
