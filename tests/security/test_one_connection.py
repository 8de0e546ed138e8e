"""What a client sends on its connection, and how it leaves, reaches no other client."""

import json
import socket

import pytest

from tests.security.test_front_end_attacks import is_well, raw
from tests.support.attackers import BOSS, CLIENT
from tests.support.serving import Served
from tests.support.streams import FrontStreams, ask_and_wait
from tests.support.waiting import HANG_SECONDS, wait_for


@pytest.mark.parametrize(
    "behind",
    [
        b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n" * 1000,
        b"POST /invocations HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{",
    ],
    ids=["a request", "a thousand", "a half one"],
)
def test_a_client_that_pipelines_and_leaves_ends_its_own_requests(
    attacked: Served, behind: bytes
) -> None:
    beside = FrontStreams(attacked, "echo", 8, 60, ("LMI", "TGI"))
    cancelled = attacked.metric("lmi_requests_total", "echo", outcome="cancelled")
    for _ in range(3):
        with ask_and_wait(attacked, "LMI", 400) as connection:
            connection.sendall(behind)
            connection.recv(200)
    beside.assert_whole()
    # Those of the clients that left are not generated to their end.
    wait_for(
        lambda: attacked.metric("lmi_requests_total", "echo", outcome="cancelled") >= cancelled + 3
    )
    wait_for(lambda: attacked.metric("lmi_requests_open", "echo") == 0)


def test_a_trailer_names_no_key_model_or_site(guarded: Served) -> None:
    """A proxy sets and removes headers; what comes behind the body passes most of them."""
    body = json.dumps({"inputs": "a", "parameters": {"max_new_tokens": 2}}).encode()
    chunks = b"%x\r\n%b\r\n0\r\n" % (len(body), body)

    def status(headers: dict[str, str], trailers: dict[str, str]) -> int:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"POST /invocations HTTP/1.1\r\nhost: localhost\r\n{lines}connection: close\r\n"
        data = head.encode() + b"transfer-encoding: chunked\r\n\r\n" + chunks
        data += "".join(f"{name}: {value}\r\n" for name, value in trailers.items()).encode()
        return int(raw(guarded, data + b"\r\n").split(b" ")[1])

    assert status(CLIENT, {}) == 200
    assert status({}, CLIENT) == 401
    assert status({}, BOSS) == 401
    evil = {"origin": "http://evil.example"}
    assert status(CLIENT | evil, {"origin": f"http://{guarded.front_end}"}) == 403
    assert status(CLIENT, evil | {"x-amzn-sagemaker-target-model": "another"}) == 200


@pytest.mark.parametrize("key", [True, False])
def test_trailers_without_an_end_close_the_connection(guarded: Served, *, key: bool) -> None:
    (front_end,) = guarded.front_ends()
    before = front_end.memory_info().rss
    head = "POST /invocations HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n"
    head += f"authorization: {CLIENT['authorization']}\r\n" if key else ""
    sent = 0
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=HANG_SECONDS) as connection:
        connection.sendall(head.encode() + b"\r\n1\r\na\r\n0\r\n")
        try:
            while sent < 60 << 20:
                connection.sendall(b"x-a: y\r\n" * 8192)
                sent += 8 * 8192
        except OSError:
            pass
    # What lies in the sockets' buffers has been sent too.
    assert sent < 60 << 20
    assert front_end.memory_info().rss - before < 20 << 20
    assert is_well(guarded)
