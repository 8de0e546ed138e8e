"""Triton's HTTP threads lose no response, and do not see who leaves one that is not streamed."""

import contextlib
import json
import os
import re
import socket
from pathlib import Path

from lmi_backend.supervisor.send_buffers import ENOUGH, _sockets, socket_pairs
from tests.support.serving import Served
from tests.support.streams import request_of
from tests.support.waiting import wait_for

ENDED = "lmi_requests_total"


def server(served: Served) -> int:
    (found,) = (each.pid for each in served.named("tritonserver"))
    return found


def test_responses_may_wait_for_a_slow_http_thread(served: Served) -> None:
    sizes = [
        end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) for end in socket_pairs(server(served))
    ]
    # Later it makes further pairs, which are not for responses.
    wide = [size for size in sizes if size >= ENOUGH]
    assert len(wide) >= 16, "tritonserver has eight HTTP threads, each with a pair"


def test_triton_cannot_be_told_that_a_client_left(served: Served) -> None:
    """Why `serve` does not: what is done to the connection is not seen until the answer ends."""
    body = json.dumps({"inputs": "a", "parameters": {"max_new_tokens": 200}}).encode()
    ended = served.metric(ENDED, "echo", outcome="length")
    with socket.create_connection(("127.0.0.1", served.http_port)) as client:
        wait_for(lambda: _inode(server(served), client) in _awaited(server(served)))
        client.sendall(request_of("/v2/models/echo/generate", body))
        wait_for(lambda: served.metric("lmi_requests_open", "echo") == 1)
        inode = _inode(server(served), client, shut=True)
    assert inode
    assert inode not in _awaited(server(served))
    wait_for(lambda: served.metric("lmi_requests_open", "echo") == 0)
    wait_for(lambda: served.metric(ENDED, "echo", outcome="length") == ended + 1)


def _inode(process: int, client: socket.socket, *, shut: bool = False) -> int:
    """Return the inode of the process's end of a connection, which may be shut down; 0 for none."""
    for copy in _sockets(process):
        with contextlib.suppress(OSError):  # It listens, or is of a pair.
            if copy.getpeername() == client.getsockname():
                if shut:
                    copy.shutdown(socket.SHUT_RDWR)
                return os.fstat(copy.fileno()).st_ino
    return 0


def _awaited(process: int) -> set[int]:
    """Return the inodes of all that a process waits for."""
    found: set[int] = set()
    for each in Path(f"/proc/{process}/fdinfo").iterdir():
        with contextlib.suppress(FileNotFoundError):  # It was closed meanwhile.
            text = each.read_text(encoding="ascii")
            found |= {int(ino, 16) for ino in re.findall(r"^tfd:.* ino:(\w+)", text, re.MULTILINE)}
    return found
