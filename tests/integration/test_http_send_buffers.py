"""Triton's HTTP threads lose no response."""

import socket

from lmi_backend.supervisor.send_buffers import ENOUGH, socket_pairs
from tests.support.servers.serving import Served


def test_responses_may_wait_for_a_slow_http_thread(served: Served) -> None:
    (server,) = served.named("tritonserver")
    sizes = [
        end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) for end in socket_pairs(server.pid)
    ]
    # Later it makes further pairs, which are not for responses.
    wide = [size for size in sizes if size >= ENOUGH]
    assert len(wide) >= 16, "tritonserver has eight HTTP threads, each with a pair"
