"""Hostile bodies over HTTP: every one is answered, and the model serves on."""

import json
import re
from typing import Any

import pytest

from lmi_backend.clients.registry import PATHS
from tests.support.servers.serving import Served


def test_large_bodies_are_answered_or_refused_by_their_bound(served: Served) -> None:
    """A chat with an image of 30 MB goes through; nothing ends a worker."""
    workers = [worker.pid for worker in served.workers("echo")]
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'A' * (30 << 20)}"}}
    body = {"model": "echo", "messages": [{"role": "user", "content": [image]}]}
    status, _, reply = served.ask("/v1/chat/completions", body)
    # The echo engine repeats such a body.
    assert (status, json.loads(reply)) == (200, body)
    prompt = {"inputs": "word " * 600_000}
    assert "tokens or more; accepted: fewer than" in served.generate("echo", prompt)[1]["error"]
    large = {"inputs": "a" * (64 << 20)}
    status, _, reply = served.ask("/invocations", large)
    assert (status, b"larger than 67108864 bytes" in reply) == (413, True)
    status, answer = served.generate("echo", large)
    assert (status, "(option.max_output_size)" in answer["error"]) == (400, True)
    assert [worker.pid for worker in served.workers("echo")] == workers


BODY = (
    b'{"model":"MODEL","prompt":"TEXT","text_input":"TEXT","inputs":"TEXT","input":"TEXT"'
    b',"query":"TEXT","documents":["TEXT"],"messages":[{"role":"user","content":"TEXT"}]'
    b',"max_tokens":2}'
)
"""What each path reads something of."""
TEXTS = {
    "latin-1": b"caf\xe9",
    "quotes of Windows": b"\x93a\x94",
    "a cut character": b"\xc3",
    "an overlong one": b"\xc0\x80",
    "half a pair": b"\xed\xa0\x80",
    "half a pair, escaped": rb"\ud83d",
    "beyond Unicode": b"\xf5\x80\x80\x80",
    "a large text": b"a" * (1 << 18) + b"\xe9",
}
NUMBERS = {"too large": b"1e400", "too small": b"-1e400", "too long": b"9" * 5000, "no": b"NaN"}
HOSTILE = {
    **{name: BODY.replace(b"TEXT", text) for name, text in TEXTS.items()},
    "latin-1 in a name": BODY.replace(b'"max_tokens"', b'"max_tok\xe9ns"'),
    "one member": b'{"model":"MODEL","messages":[],"n":1,"stop":"\xe9"}',
    **{
        f"a number that is {name}": BODY.replace(b":2}", b':2,"seed":%s}' % number)
        for name, number in NUMBERS.items()
    },
}
POSTED = sorted({each.template for each in PATHS if "POST" in each.methods})


@pytest.mark.parametrize("model", ["tiny", "echo"])
@pytest.mark.parametrize("template", POSTED)
def test_no_path_fails_for_what_is_no_text_or_no_number(
    served: Served, template: str, model: str
) -> None:
    """SDKs send a request again that has failed with 500, and alerts count it."""
    path = re.sub(r"\{(\w+)(:path)?\}", lambda found: PLACES.get(found[1], model), template)
    failed = {}
    for name, body in HOSTILE.items():
        status, _, answer = served.ask(path, body.replace(b"MODEL", model.encode()))
        if status >= 500:
            failed[name] = status, answer[:300]
        assert name.startswith("a number") or b"is not an object" not in answer
    assert failed == {}


PLACES = {"id": "resp_1", "rest": "models/tiny/infer"}
"""What stands in a path for the names in braces that are no model's."""


WRONG: dict[str, dict[str, Any]] = {
    "no choice": {"structured_outputs": {"choice": []}},
    "half a pattern": {"structured_outputs": {"regex": "a("}},
    "a grammar that is none": {"structured_outputs": {"grammar": "root ::="}},
    "a type that is none": {"structured_outputs": {"json": {"type": "nothing"}}},
    "JSON that is none": {"structured_outputs": {"json": "{"}},
    "a temperature": {"temperature": -1},
    "a share": {"top_p": 7},
    "a count": {"top_logprobs": 10_000, "logprobs": True},
    "a model": {"model": "nobody"},
}
ENDPOINTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2},
    "/v1/completions": {"prompt": "a", "max_tokens": 2},
    "/v1/responses": {"input": "a", "max_output_tokens": 17},
}


def _failure_of(status: int, data: bytes) -> tuple[int, str]:
    """Return status and message of an answer, or of the event of a stream that fails."""
    if status == 200:
        events = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: {")]
        data = json.dumps(next((each for each in events if each.get("error")), {})).encode()
    error = json.loads(data).get("error", {})
    return error.get("code", 0), error.get("message", "")


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_has_one_class_on_each_endpoint(served: Served, wrong: str) -> None:
    """Streamed or not: a client's mistake is never the server's fault."""
    seen = {}
    for path, body in ENDPOINTS.items():
        for streams in (False, True):
            asked = {"model": "tiny"} | body | {"stream": streams} | WRONG[wrong]
            status, _, data = served.ask(path, asked)
            seen[path, streams] = _failure_of(status, data)
    assert {code // 100 for code, _ in seen.values()} == {4}, seen
    assert not any(re.search(r"^\w+Error\b|\.cc:", text) for _, text in seen.values()), seen
