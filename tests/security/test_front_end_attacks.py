"""What attackers send to the front end's port."""

import contextlib
import json
import socket

import pytest

from tests.support.answers.streams import request_of
from tests.support.harm.attackers import BOSS, CLIENT
from tests.support.run.waiting import HANG_SECONDS, wait_for
from tests.support.servers.serving import Served

_TOO_MANY_HEADERS = b"HTTP/1.1 431 Request Header Fields Too Large"
BODY = {"inputs": "a b c", "parameters": {"max_new_tokens": 2}}


def raw(server: Served, data: bytes, *, wait: float = 10.0) -> bytes:
    """Send bytes and return all that comes back until the server closes, or says nothing more."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=wait) as connection:
        answer = b""
        # It may have closed before all is sent.
        with contextlib.suppress(OSError):
            connection.sendall(data)
        with contextlib.suppress(OSError):
            while part := connection.recv(65536):
                answer += part
    return answer


def is_well(server: Served) -> bool:
    return server.ask("/invocations", BODY, CLIENT)[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/v2/repository/index", "/v2/./repository/index", "/v2/models/../repository/index",
        "/v2/%72epository/index", "/v2/models/echo%2f..%2f..%2frepository/config",
    ],
)  # fmt: skip
def test_operators_paths_of_triton_are_passed_in_no_spelling(guarded: Served, path: str) -> None:
    for body in (None, b"{}"):
        assert guarded.ask(path, body, BOSS)[0] == 404


def test_a_deep_body_is_refused_and_does_not_reach_triton(guarded: Served) -> None:
    before = [each.pid for each in guarded.family()]
    deep = b"[" * 400_000 + b"]" * 400_000
    for path in ("/v2/models/echo/generate", "/v2/models/echo/infer", "/v1/chat/completions",
                 "/invocations", "/generate"):  # fmt: skip
        status, _, data = guarded.ask(path, deep, CLIENT)
        assert 400 <= status < 500, path
        assert any(word in data for word in (b"deep", b"object", b"recursion", b"values")), path
    assert is_well(guarded)
    assert [each.pid for each in guarded.family()] == before


def test_a_body_is_bounded_whether_it_says_its_length_or_not(guarded: Served) -> None:
    status, _, _ = guarded.ask("/invocations", b"x" * 1_000_001, CLIENT)
    assert status == 413
    head = b"POST /invocations HTTP/1.1\r\nhost: a\r\nauthorization: Bearer client-key\r\n"
    chunked = head + b"transfer-encoding: chunked\r\n\r\n" + b"10000\r\n" + b"x" * 65536 + b"\r\n"
    answer = raw(guarded, chunked + (b"10000\r\n" + b"x" * 65536 + b"\r\n") * 20)
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_headers_without_an_end_are_cut_off(guarded: Served) -> None:
    endless = b"GET /ping HTTP/1.1\r\nhost: a\r\n" + b"x-a: " + b"y" * 200_000
    assert raw(guarded, endless).partition(b"\r\n")[0] in (b"", _TOO_MANY_HEADERS)
    # The rest, which nobody reads, may reset the connection before the answer is read.
    many = b"GET /ping HTTP/1.1\r\nhost: a\r\n" + b"x-a: y\r\n" * 20_000
    assert raw(guarded, many).partition(b"\r\n")[0] in (b"", _TOO_MANY_HEADERS)
    assert is_well(guarded)


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\r\n" * 1000,
        b"PRI * HTTP/2.0\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nhost: a\r\nx\x00y: z\r\n\r\n",
    ],
)  # fmt: skip
def test_what_is_no_http_ends_that_connection_only(guarded: Served, data: bytes) -> None:
    answer = raw(guarded, data, wait=2)
    assert not answer or not answer.startswith(b"HTTP/1.1 2") or b"ping" in data
    assert is_well(guarded)


def test_a_line_of_the_log_cannot_be_forged(attacked: Served) -> None:
    before = attacked.log_file.stat().st_size
    given = {"origin": "http://[", "x-request-id": "1 key=boss status=200"}
    status, answer, _ = attacked.ask("/nothing%0a2026-11-25%20INFO%20forged%1b[31m", headers=given)
    assert (status, answer["x-request-id"]) == (403, "1 key=boss status=200")

    def lines() -> list[str]:
        data = attacked.log(before)
        return [line for line in data.splitlines() if "nothing" in line]

    wait_for(lambda: bool(lines()))
    (line,) = lines()
    assert line.isprintable()
    # What a client chooses is one word, so that each word is ours.
    fields = dict(word.split("=") for word in line.split(" ") if "=" in word)
    assert fields["id"] == "1%20key%3Dboss%20status%3D200"
    assert (fields["key"], fields["status"]) == ("-", str(status))
    assert line.count(" key=") == line.count(" status=") == 1
    assert "Traceback" not in attacked.log(before)


def test_clients_see_no_folder_of_the_server(attacked: Served) -> None:
    for path in ("/v1/models", "/info"):
        status, _, data = attacked.ask(path)
        assert status == 200
        assert b"/" not in data.replace(b"lmi-backend/", b"")


def test_one_key_does_not_use_up_another(guarded: Served) -> None:
    slow = {"authorization": "Bearer slow-key"}
    cancelled = guarded.metric("lmi_requests_total", "echo", outcome="cancelled")
    long = {"inputs": "a", "stream": True, "parameters": {"max_new_tokens": 1000}}
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=HANG_SECONDS) as first:
        key = "authorization: Bearer slow-key"
        first.sendall(request_of("/invocations", json.dumps(long).encode(), key))
        assert first.recv(100).startswith(b"HTTP/1.1 200")
        status, answer, _ = guarded.ask("/invocations", BODY, slow)
        assert (status, answer["retry-after"]) == (429, "1")
        assert is_well(guarded)
    # It left: its place is free, and it has not come to its end.
    wait_for(lambda: guarded.ask("/invocations", BODY, slow)[0] == 200)
    wait_for(
        lambda: guarded.metric("lmi_requests_total", "echo", outcome="cancelled") == cancelled + 1
    )


def test_keys_stand_in_no_log(guarded: Served) -> None:
    guarded.ask("/invocations", BODY, CLIENT)
    guarded.logged("key=client")
    assert not any(key in guarded.log() for key in ("client-key", "slow-key", "boss-key"))
