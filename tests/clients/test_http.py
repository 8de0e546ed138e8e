"""What curl sends: LMI's bodies, and HTTP's corners."""

import json
import subprocess

import pytest

from tests.clients.conftest import KEY
from tests.support.servers.serving import Served

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


def test_adapters_are_managed(served: Served) -> None:
    status, _, data = served.ask("/models/tiny/adapters", None, KEYED)
    assert status == 200
    assert b"wrong" in data


def test_a_chunked_upload_that_waits_to_be_told(served: Served) -> None:
    words = ("-H", "Transfer-Encoding: chunked", "-H", "Expect: 100-continue", "-d", "@-")
    head, body = curl(served, "/predictions/tiny", *words, data=json.dumps(BODY).encode())
    assert head.startswith("http/1.1 200")
    assert json.loads(body) == {"generated_text": " Rome."}


def test_a_connection_is_used_again(served: Served) -> None:
    """After errors too, and those that came before the body was read."""
    url = f"http://{served.front_end}"
    asked = [f"{url}/nothing", f"{url}/v1/completions", f"{url}/predictions/tiny"]
    words = ["-H", f"Authorization: Bearer {KEY}", "-d", json.dumps(BODY), "-w", "%{num_connects} "]
    command = ["curl", "-sS", "-o", "/dev/null", "-o", "/dev/null", "-o", "/dev/null", *words]
    done = subprocess.run([*command, *asked], capture_output=True, check=True, timeout=100)
    assert done.stdout.split() == [b"1", b"0", b"0"]
