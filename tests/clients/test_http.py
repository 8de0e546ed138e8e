"""What curl sends: LMI's bodies, and HTTP's corners."""

import gzip
import json
import subprocess
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from backports import zstd

from tests.clients.conftest import KEY
from tests.support.serving import Served

BODY = {"inputs": "The capital of Italy is", "parameters": {"max_new_tokens": 20}}
KEYED = {"authorization": f"Bearer {KEY}"}
TINY = KEYED | {"x-amzn-sagemaker-target-model": "tiny"}


def curl(served: Served, path: str, *words: str, data: bytes = b"") -> tuple[str, str]:
    command = ["curl", "-sS", "-i", "-m", "100", "-H", f"Authorization: Bearer {KEY}", *words]
    url = f"http://{served.front_end}{path}"
    done = subprocess.run([*command, url], input=data, capture_output=True, check=True)
    head, _, body = done.stdout.decode().partition("\r\n\r\n")
    while head.startswith("HTTP/1.1 100"):
        head, _, body = body.partition("\r\n\r\n")
    return head.lower(), body


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/x-www-form"])
@pytest.mark.parametrize("accept", ["*/*", "application/json", "application/jsonlines"])
def test_lmi_reads_json_of_any_type(served: Served, kind: str, accept: str) -> None:
    headers = TINY | {"content-type": kind, "accept": accept}
    status, answer_headers, data = served.ask("/invocations", BODY, headers)
    assert (status, answer_headers["content-type"]) == (200, "application/json")
    assert json.loads(data) == {"generated_text": " Rome."}


@pytest.mark.parametrize("path", ["/predictions/tiny", "/models/tiny/invoke"])
def test_streams_are_json_lines(served: Served, path: str) -> None:
    head, body = curl(served, path, "-d", json.dumps(BODY | {"stream": True}))
    assert "content-type: application/jsonlines" in head
    lines = [json.loads(line) for line in body.splitlines()]
    assert "".join(line["token"]["text"] for line in lines) == " Rome."
    assert lines[-1]["generated_text"] == " Rome."


def test_errors_are_lmis(served: Served) -> None:
    status, _, data = served.ask("/invocations", {"inputs": 7}, TINY)
    assert (status, json.loads(data)["code"]) == (424, 424)
    status, _, data = served.ask("/predictions/none", BODY, KEYED)
    assert (status, json.loads(data)["code"]) == (404, 404)


def test_adapters_are_managed(served: Served) -> None:
    status, _, data = served.ask("/models/tiny/adapters", None, KEYED)
    assert status == 200
    assert b"wrong" in data


def test_a_chunked_upload_that_waits_to_be_told(served: Served) -> None:
    words = ("-H", "Transfer-Encoding: chunked", "-H", "Expect: 100-continue", "-d", "@-")
    head, body = curl(served, "/predictions/tiny", *words, data=json.dumps(BODY).encode())
    assert head.startswith("http/1.1 200")
    assert json.loads(body) == {"generated_text": " Rome."}


def test_an_offer_of_http_2_is_declined(served: Served) -> None:
    """Java's client makes it too, with each first request."""
    head, body = curl(served, "/predictions/tiny", "--http2", "-d", json.dumps(BODY))
    assert head.startswith("http/1.1 200")
    assert json.loads(body) == {"generated_text": " Rome."}


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("zstd", zstd.compress)],
)
@pytest.mark.parametrize(
    "path", ["/predictions/tiny", "/v1/completions", "/v2/models/tiny/generate"]
)
def test_a_compressed_body_is_decoded(
    served: Served, path: str, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    body = BODY
    if path.endswith("completions"):
        body = {"model": "tiny", "prompt": BODY["inputs"], "temperature": 0}
    if path.endswith("generate"):
        body = {"text_input": BODY["inputs"], "max_tokens": 20}
    headers = KEYED | {"content-encoding": encoding}
    status, _, data = served.ask(path, pack(json.dumps(body).encode()), headers)
    assert (status, b"Rome" in data) == (200, True)


@pytest.mark.parametrize("stream", [False, True])
def test_http_1_0_gets_no_chunks(served: Served, stream: bool) -> None:
    body: dict[str, Any] = BODY | {"stream": stream}
    head, text = curl(served, "/predictions/tiny", "--http1.0", "-d", json.dumps(body))
    assert "transfer-encoding" not in head
    # A stream ends where its connection does, unless all of it was there before its head was sent.
    if not stream or "content-length" in head:
        assert f"content-length: {len(text)}" in head
    assert "connection: close" in head
    assert "Rome" in text


def test_a_target_is_a_url_without_a_path(served: Served) -> None:
    """As RFC 9112 has it: the empty path is a slash, and the host is that of the URL."""
    slash, _ = curl(served, "/")
    for url in ("http://localhost", "http://localhost?a=b"):
        head, _ = curl(served, "/ping", "--request-target", url)
        assert head.split()[:2] == slash.split()[:2]
    head, _ = curl(served, "/ping", "-X", "OPTIONS", "--request-target", "http://localhost")
    assert head.startswith("http/1.1 204")
    assert "delete, get, head, post, put" in head
    head, _ = curl(served, "/none", "--request-target", "http://localhost/ping")
    assert head.startswith("http/1.1 200")


def test_http_1_0_is_not_told_to_continue(served: Served) -> None:
    """The client would take that for the answer, which has no body then."""
    words = ("--http1.0", "-H", "Expect: 100-continue", "-d", json.dumps(BODY))
    head, body = curl(served, "/predictions/tiny", *words)
    assert head.startswith("http/1.1 200")
    assert json.loads(body) == {"generated_text": " Rome."}


def test_head_and_options(served: Served) -> None:
    head, body = curl(served, "/ping", "--head")
    assert head.startswith("http/1.1 200")
    assert not body
    head, _ = curl(served, "/v1/chat/completions", "-X", "OPTIONS")
    assert head.startswith("http/1.1 204")
    assert "allow: post" in head
    assert "content-length" not in head
    assert curl(served, "/nothing", "-X", "OPTIONS")[0].startswith("http/1.1 404")
    head, _ = curl(served, "/", "-X", "OPTIONS", "--request-target", "*")
    assert head.startswith("http/1.1 204")
    assert "allow: delete, get, head, post, put" in head
    head, _ = curl(served, "/v1/chat/completions")
    assert head.startswith("http/1.1 405")
    assert "allow: post" in head


def test_a_connection_is_used_again(served: Served) -> None:
    """After errors too, and those that came before the body was read."""
    url = f"http://{served.front_end}"
    asked = [f"{url}/nothing", f"{url}/v1/completions", f"{url}/predictions/tiny"]
    words = ["-H", f"Authorization: Bearer {KEY}", "-d", json.dumps(BODY), "-w", "%{num_connects} "]
    command = ["curl", "-sS", "-o", "/dev/null", "-o", "/dev/null", "-o", "/dev/null", *words]
    done = subprocess.run([*command, *asked], capture_output=True, check=True, timeout=100)
    assert done.stdout.split() == [b"1", b"0", b"0"]
