"""What attackers send to the front end's port."""

import contextlib
import json
import socket

import pytest

from tests.support.attackers import BOSS, CLIENT
from tests.support.serving import Served
from tests.support.waiting import HANG_SECONDS, wait_for

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
        "/invocations", "/v1/chat/completions", "/v1/models", "/v2", "/v2/models/echo/generate",
        "/generate", "/info", "/predictions/echo", "/adapters", "/v1/load_lora_adapter",
    ],
)  # fmt: skip
@pytest.mark.parametrize("key", [None, "", "Bearer", "Bearer wrong", "Basic Y2xpZW50LWtleQ=="])
def test_nothing_is_answered_without_a_key(guarded: Served, path: str, key: str | None) -> None:
    headers = {} if key is None else {"authorization": key}
    method = "GET" if path in ("/v1/models", "/v2", "/info", "/adapters") else "POST"
    body = None if method == "GET" else BODY
    status, answer, _ = guarded.ask(path, body, headers, method)
    assert (status, answer["www-authenticate"]) == (401, "Bearer")


def test_probes_need_none(guarded: Served) -> None:
    assert [guarded.ask(path)[0] for path in ("/ping", "/health", "/live")] == [200, 200, 200]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/adapters"), ("DELETE", "/adapters/a"), ("POST", "/models/echo/adapters"),
        ("PUT", "/models/echo/adapters/a"), ("POST", "/v1/load_lora_adapter"),
        ("POST", "/v1/unload_lora_adapter"),
    ],
)  # fmt: skip
def test_a_client_does_not_manage(guarded: Served, method: str, path: str) -> None:
    body = {"name": "a", "src": "/etc", "lora_name": "a", "lora_path": "/etc"}
    assert guarded.ask(path, body, CLIENT, method)[0] == 403
    # The model's own answer: LoRA is not enabled here.
    assert guarded.ask(path, body, BOSS, method)[0] in (400, 404)


@pytest.mark.parametrize(
    "path",
    [
        "/v2/repository/index", "/v2/repository/models/echo/load", "/v2//repository/index",
        "/v2/./repository/index", "/v2/models/../repository/index", "/v2/%72epository/index",
        "/v2/systemsharedmemory/status", "/v2/cudasharedmemory/status", "/v2/logging",
        "/v2/trace/setting", "/v2/models/echo/trace/setting", "/v2/models/echo/generate/../load",
        "/v2/models/echo%2f..%2f..%2frepository/config", "/v2/systemsharedmemory/region/a/register",
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_operators_paths_of_triton_are_not_passed(guarded: Served, method: str, path: str) -> None:
    for key in (CLIENT, BOSS):
        assert guarded.ask(path, b"{}" if method == "POST" else None, key, method)[0] == 404


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


def test_a_million_small_chunks_are_one_body_for_triton(guarded: Served) -> None:
    body = json.dumps({"text_input": "a b", "max_tokens": 2}).encode()
    body += b" " * (200_000 - len(body))
    head = b"POST /v2/models/echo/generate HTTP/1.1\r\nhost: a\r\nconnection: close\r\n"
    head += b"authorization: Bearer client-key\r\ntransfer-encoding: chunked\r\n\r\n"
    data = b"".join(b"1\r\n" + body[i : i + 1] + b"\r\n" for i in range(len(body)))
    assert raw(guarded, head + data + b"0\r\n\r\n", wait=30).startswith(b"HTTP/1.1 200 ")
    assert is_well(guarded)


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


def test_a_page_of_another_site_cannot_ask(guarded: Served) -> None:
    for origin in ("http://evil.example", "null", "http://127.0.0.1.evil.example", "file://"):
        headers = CLIENT | {"origin": origin, "content-type": "text/plain"}
        assert guarded.ask("/invocations", BODY, headers)[0] == 403, origin
    own = CLIENT | {"origin": f"http://{guarded.front_end}"}
    assert guarded.ask("/invocations", BODY, own)[0] == 200


def test_a_name_that_somebody_else_gave_this_address_is_not_served(guarded: Served) -> None:
    name = f"evil.example:{guarded.port}"
    rebound = {"host": name, "origin": f"http://{name}"}
    assert guarded.ask("/invocations", BODY, CLIENT | rebound)[0] == 403
    only_host = {"host": name}
    assert guarded.ask("/adapters", {"name": "a", "src": "b"}, BOSS | only_host)[0] == 403


@pytest.mark.parametrize(
    "path", ["/v1/models", "/v1/models/echo", "/info", "/metrics", "/version", "/v2",
             "/v2/models/echo/config", "/adapters", "/models", "/api/state", "/"],
)  # fmt: skip
def test_a_page_reads_nothing_under_another_name(attacked: Served, path: str) -> None:
    for name in (f"evil.example:{attacked.port}", "127.0.0.1.evil.example", "evil.example."):
        status, _, data = attacked.ask(path, headers={"host": name})
        assert status == 403
        assert b"--allowed-hosts" in data
    for name in (f"localhost:{attacked.port}", "127.0.0.1", f"[::1]:{attacked.port}", "LOCALHOST"):
        assert attacked.ask(path, headers={"host": name})[0] != 403
    assert attacked.ask("/ping", headers={"host": "evil.example"})[0] == 200


@pytest.mark.parametrize("headers", [{"origin": "http://["}, {"host": "["}, {"host": "a@b"}])
def test_a_line_of_the_log_cannot_be_forged(attacked: Served, headers: dict[str, str]) -> None:
    before = attacked.log_file.stat().st_size
    given = headers | {"x-request-id": "1 key=boss status=200"}
    status, answer, _ = attacked.ask("/nothing%0a2026-11-25%20INFO%20forged%1b[31m", headers=given)
    assert (status, answer["x-request-id"]) == (403 if "origin" in headers else 400,
                                              "1 key=boss status=200")  # fmt: skip

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


def test_a_signature_of_60_kilobytes_is_refused_without_a_key(guarded: Served) -> None:
    """That it is read at once is counted in unit/frontend/http/test_access.py."""
    line = b"authorization: AWS4-HMAC-SHA256 " + b"Credential=" * 5_300
    attack = b"GET /v1/models HTTP/1.1\r\nhost: a\r\n" + line + b"\r\n\r\n"
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=HANG_SECONDS) as connection:
        connection.sendall(attack * 5)
        assert is_well(guarded)
        assert connection.recv(100).startswith(b"HTTP/1.1 401 ")


def test_one_key_does_not_use_up_another(guarded: Served) -> None:
    slow = {"authorization": "Bearer slow-key"}
    cancelled = guarded.metric("lmi_requests_total", "echo", outcome="cancelled")
    long = {"inputs": "a", "stream": True, "parameters": {"max_new_tokens": 1000}}
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=HANG_SECONDS) as first:
        data = json.dumps(long).encode()
        head = "POST /invocations HTTP/1.1\r\nhost: a\r\nauthorization: Bearer slow-key\r\n"
        head += f"content-length: {len(data)}\r\n\r\n"
        first.sendall(head.encode() + data)
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
