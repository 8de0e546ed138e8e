"""Replay finds each planted fault with a small request, and none between a server and itself."""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.cli.main import main
from lmi_backend.replay import kinds
from lmi_backend.replay.exchange import Exchange, Request
from lmi_backend.replay.judge import Judge
from lmi_backend.replay.running import Replay
from lmi_backend.replay.sending import Target
from lmi_backend.replay.shrinking import Example, example_of, fields_of
from tests.support.faulty_proxy import (
    HEADER,
    Plant,
    Planted,
    faulty_proxy,
    in_event,
    in_events,
    in_json,
)
from tests.support.ports import free_ports
from tests.support.serving import Served

MORE = {"temperature": 0, "top_p": 1.0, "seed": 7, "user": "someone", "max_tokens": 4}
CHAT: dict[str, Any] = {
    "model": "echo",
    "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "one two"}],
    **MORE,
}
TEXT = {"model": "echo", "prompt": "one two three four", **MORE}
PARAMETERS = {"max_new_tokens": 4, "details": True, "top_p": 0.9, "do_sample": False, "seed": 3}
LMI = {"inputs": "one two three four", "parameters": PARAMETERS}
TRITON = {"text_input": "one two", "max_tokens": 4, "temperature": 0, "seed": 1, "top_p": 1}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", CHAT),
    "chat stream": ("/v1/chat/completions", CHAT | {"stream": True}),
    "completion": ("/v1/completions", TEXT),
    "unknown model": ("/v1/chat/completions", CHAT | {"model": "nobody"}),
    "LMI": ("/invocations", LMI),
    "LMI stream": ("/invocations", LMI | {"stream": True}),
    "wrong LMI": ("/invocations", LMI | {"parameters": PARAMETERS | {"max_new_tokens": "x"}}),
    "TGI": ("/generate", LMI),
    "TGI stream": ("/generate_stream", LMI),
    "Triton": ("/v2/models/echo/generate", TRITON),
    "Triton stream": ("/v2/models/echo/generate_stream", TRITON | {"stream": True}),
    "SageMaker stream": ("/endpoints/e/invocations-response-stream", LMI | {"stream": True}),
}


def put(*path: Any, value: Any) -> Any:
    """Return what sets a member of an answer."""

    def change(read: Any) -> None:
        inner = read
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = value

    return change


def drop(*path: Any) -> Any:
    """Return what removes a member of an answer."""

    def change(read: Any) -> None:
        inner = read
        for name in path[:-1]:
            inner = inner[name]
        del inner[path[-1]]

    return change


def add(amount: float, *path: Any) -> Any:
    """Return what adds to a number of an answer."""

    def change(read: Any) -> None:
        inner = read
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] += amount

    return change


def field(name: str, value: Any) -> Plant:
    """Return what sets a field of the whole answer."""
    return lambda answer: setattr(answer, name, value)


def header(name: str, value: str | None = None) -> Plant:
    """Return what sets a header, or removes it."""

    def plant(answer: Planted) -> None:
        answer.headers.pop(name, None)
        if value is not None:
            answer.headers[name] = value

    return plant


def half(answer: Planted) -> None:
    answer.body = answer.body[: len(answer.body) // 2]


def without_blank(answer: Planted) -> None:
    answer.body = answer.body.replace(b"data: ", b"data:")


def unfinished(answer: Planted) -> None:
    answer.body = answer.body.rstrip(b"\n")


def swapped(first: int, second: int) -> Plant:
    def change(events: list[bytes]) -> None:
        events[first], events[second] = events[second], events[first]

    return in_events(change)


CHOICE = ("choices", 0)
FAULTS: dict[str, tuple[str, str, Plant]] = {
    "a missing count": ("chat", kinds.MISSING, in_json(drop("usage", "total_tokens"))),
    "a missing usage": ("chat", kinds.MISSING, in_json(drop("usage"))),
    "a missing reason": ("chat", kinds.MISSING, in_json(drop(*CHOICE, "finish_reason"))),
    "a missing id": ("chat", kinds.MISSING, in_json(drop("id"))),
    "a missing role": ("chat", kinds.MISSING, in_json(drop(*CHOICE, "message", "role"))),
    "a number as a text": ("chat", kinds.TYPE, in_json(put("created", value="1"))),
    "a count as a text": ("chat", kinds.TYPE, in_json(put("usage", "prompt_tokens", value="2"))),
    "usage off by one": ("chat", kinds.USAGE, in_json(add(1, "usage", "completion_tokens"))),
    "prompt off by one": ("chat", kinds.USAGE, in_json(add(1, "usage", "prompt_tokens"))),
    "a wrong reason": ("chat", kinds.FINISH, in_json(put(*CHOICE, "finish_reason", value="stop"))),
    "LMI's reason": ("chat", kinds.FINISH, in_json(put(*CHOICE, "finish_reason", value="eos"))),
    "no reason": ("chat", kinds.TYPE, in_json(put(*CHOICE, "finish_reason", value=None))),
    "another object": ("chat", kinds.VALUE, in_json(put("object", value="completion"))),
    "another role": ("chat", kinds.VALUE, in_json(put(*CHOICE, "message", "role", value="user"))),
    "another model": ("chat", kinds.VALUE, in_json(put("model", value="lmi"))),
    "a fraction": ("chat", kinds.NUMBER_FORM, in_json(put(*CHOICE, "index", value=0.0))),
    "other words": ("chat", kinds.GREEDY, in_json(put(*CHOICE, "message", "content", value="no"))),
    "no content": ("chat", kinds.TYPE, in_json(put(*CHOICE, "message", "content", value=None))),
    "a new member": ("chat", kinds.ADDED, in_json(put("more", value=1))),
    "null for absent": ("chat", kinds.NULL, in_json(put(*CHOICE, "logprobs", value=None))),
    "no choice": ("chat", kinds.LENGTH, in_json(put("choices", value=[]))),
    "a choice for a list": ("chat", kinds.TYPE, in_json(put("choices", value={}))),
    "a list for an object": ("chat", kinds.TYPE, in_json(lambda read: [read])),
    "a header gone": ("chat", kinds.HEADER, header("x-request-id")),
    "a plain text": ("chat", kinds.CONTENT_TYPE, header("content-type", "text/plain")),
    "a failure": ("chat", kinds.STATUS, field("status", 500)),
    "half a body": ("chat", kinds.BODY, half),
    "an empty body": ("chat", kinds.BODY, field("body", b"")),
    "a cut connection": ("chat", kinds.UNANSWERED, field("is_cut", True)),
    "a lost [DONE]": ("chat stream", kinds.FRAMING, in_events(lambda events: events[:-1])),
    "two [DONE]": ("chat stream", kinds.FRAMING, in_events(lambda events: [*events, events[-1]])),
    "texts swapped": ("chat stream", kinds.GREEDY, swapped(0, 1)),
    "the end before": ("chat stream", kinds.ORDER, swapped(-3, -2)),
    "[DONE] before": ("chat stream", kinds.ORDER, swapped(-1, -2)),
    "a lost event": ("chat stream", kinds.GREEDY, in_events(lambda events: events[1:])),
    "a doubled event": ("chat stream", kinds.GREEDY, in_events(lambda e: [e[0], *e])),
    "no blank": ("chat stream", kinds.FRAMING, without_blank),
    "no last line": ("chat stream", kinds.FRAMING, unfinished),
    "a named event": (
        "chat stream",
        kinds.FRAMING,
        in_events(lambda events: [b"event: x\n" + events[0], *events[1:]]),
    ),
    "one id missing": ("chat stream", kinds.MISSING, in_event(0, drop("id"))),
    "another kind": ("chat stream", kinds.VALUE, in_event(0, put("object", value="x"))),
    "a text in an event": ("chat stream", kinds.TYPE, in_event(1, put("created", value="1"))),
    "usage of a stream": (
        "chat stream",
        kinds.USAGE,
        in_event(-2, add(1, "usage", "total_tokens")),
    ),
    "JSON for a stream": (
        "chat stream",
        kinds.CONTENT_TYPE,
        header("content-type", "application/json"),
    ),
    "a text as a number": ("completion", kinds.TYPE, in_json(put(*CHOICE, "text", value=1))),
    "200 for 404": ("unknown model", kinds.STATUS, field("status", 200)),
    "an error as a text": ("unknown model", kinds.TYPE, in_json(put("error", value="no"))),
    "a code as a text": ("unknown model", kinds.TYPE, in_json(put("error", "code", value="404"))),
    "another error": ("unknown model", kinds.VALUE, in_json(put("error", "type", value="x"))),
    "200 for 424": ("wrong LMI", kinds.STATUS, field("status", 200)),
    "no code": ("wrong LMI", kinds.MISSING, in_json(drop("code"))),
    "less likely": (
        "LMI",
        kinds.LOG_PROBABILITY,
        in_json(add(-0.3, "details", "tokens", 0, "log_prob")),
    ),
    "not a number": (
        "LMI",
        kinds.TYPE,
        in_json(put("details", "tokens", 0, "log_prob", value=float("nan"))),
    ),
    "one token more": ("LMI", kinds.USAGE, in_json(add(1, "details", "generated_tokens"))),
    "one token less": ("LMI", kinds.LENGTH, in_json(drop("details", "tokens", 0))),
    "OpenAI's reason": (
        "LMI",
        kinds.FINISH,
        in_json(put("details", "finish_reason", value="stop")),
    ),
    "no last text": (
        "LMI stream",
        kinds.MISSING,
        lambda answer: setattr(answer, "body", answer.body.replace(b"generated_text", b"text")),
    ),
    "lines as JSON": ("LMI stream", kinds.CONTENT_TYPE, header("content-type", "application/json")),
    "null details": ("TGI", kinds.TYPE, in_json(put("details", value=None))),
    "a wrong number": ("TGI stream", kinds.VALUE, in_event(-1, add(1, "index"))),
    "no text": ("Triton", kinds.MISSING, in_json(drop("text_output"))),
    "Triton's text": ("Triton stream", kinds.GREEDY, in_event(0, put("text_output", value="x"))),
    "a broken message": ("SageMaker stream", kinds.FRAMING, half),
}


@pytest.fixture(scope="module")
def proxy(ensemble_server: Served) -> Iterator[str]:
    plants = {name: plant for name, (_, _, plant) in FAULTS.items()}
    with faulty_proxy(ensemble_server.front_end, plants) as url:
        yield url


def exchange(request: str, **headers: str) -> Exchange:
    path, body = REQUESTS[request]
    data = json.dumps(body).encode()
    more = {"content-type": "application/json", **headers}
    return Exchange(Request(path, data, "POST", more), None, request)


@pytest.fixture(scope="module")
def found(ensemble_server: Served, proxy: str) -> dict[str, Example | None]:
    """The example of each fault, None if it was not found; made side by side, which waits less."""
    replay = Replay(Target(proxy), Judge(), Target(f"http://{ensemble_server.front_end}"))

    def example(name: str) -> Example | None:
        asked, kind, _ = FAULTS[name]
        whole = exchange(asked, **{HEADER: name})
        seen = {each.kind: each for each in replay.one(whole).differences}
        return example_of(replay, whole, seen[kind]) if kind in seen else None

    with ThreadPoolExecutor(8) as pool:
        return dict(zip(FAULTS, pool.map(example, FAULTS), strict=True))


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_with_a_small_request(
    name: str, found: dict[str, Example | None]
) -> None:
    example = found[name]
    assert example is not None
    assert example.is_repeated
    assert fields_of(example.request) <= 5, example.request.body


def test_a_server_does_not_differ_from_itself_and_its_record(
    ensemble_server: Served, proxy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://{ensemble_server.front_end}"
    recorded = tmp_path / "recorded.jsonl"
    lines = []
    for name, (path, body) in REQUESTS.items():
        answer = Target(url).send(exchange(name).request)
        events = [[answer.seconds, answer.body.decode("latin-1")]]
        own_answer = {"status": answer.status, "headers": dict(answer.headers), "events": events}
        lines.append(
            {"path": path, "body": body, "answer": own_answer} if answer.body.isascii() else {}
        )
    recorded.write_text("".join(f"{json.dumps(line)}\n" for line in lines if line))
    for against in ([], ["--against", url]):
        assert main(["replay", str(recorded), "--url", url, "--json", *against]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["differences"] == []
        assert report["judged"] == len(REQUESTS) - 1
    # A fault of the whole server is found in the record alone, and nothing is sent twice.
    page = tmp_path / "page.html"
    words = ["--header", f"{HEADER}:a header gone", "--allow", "50%", "--html", str(page)]
    assert main(["replay", str(recorded), "--url", proxy, "--redact", *words]) == 1
    output = capsys.readouterr().out
    assert "header  x-request-id  /invocations" in output
    assert "one two" not in output + page.read_text()
    assert page.stat().st_mode & 0o777 == 0o600


def test_recorded_traffic_shows_no_difference(
    ensemble_server: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, folder = f"http://{ensemble_server.front_end}", tmp_path / "recorded"
    (port,) = free_ports(1)
    words = ["record", str(folder), "--url", url, "--port", str(port)]
    command = [sys.executable, "-m", "lmi_backend.cli.main", *words]
    recorder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert recorder.stdout is not None
        assert recorder.stdout.readline().startswith(f"recording {url} at http://127.0.0.1:{port}")
        for name in REQUESTS:
            key = {"authorization": "Bearer secret-of-somebody"}
            answer = Target(f"http://127.0.0.1:{port}", headers=key).send(exchange(name).request)
            assert not answer.error
    finally:
        recorder.terminate()
        _, output = recorder.communicate(timeout=60)
    assert f"{len(REQUESTS)} requests written, 0 " in output
    assert recorder.returncode == 0
    assert "secret" not in "".join(path.read_text() for path in folder.iterdir())
    assert main(["replay", str(folder), "--url", url, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["judged"] == len(REQUESTS)
    assert report["latencies"]["between"]["was"]["count"] > 0
