"""Replay finds no difference between a server and itself; tests/unit/migrate has what it finds."""

import json
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.cli.main import main
from lmi_backend.migrate.records import Request
from lmi_backend.migrate.running import Target
from tests.support.run.places import TESTS
from tests.support.servers.serving import Served

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
REQUESTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", CHAT | {"stream": True}),
    ("/v1/chat/completions", CHAT | {"stream": True, "temperature": 1}),
    ("/v1/chat/completions", CHAT | {"model": "nobody"}),
    ("/v1/completions", TEXT),
    ("/invocations", LMI),
    ("/invocations", LMI | {"stream": True}),
    ("/invocations", LMI | {"parameters": PARAMETERS | {"max_new_tokens": "x"}}),
    ("/generate", LMI),
    ("/generate_stream", LMI),
    ("/v2/models/echo/generate", TRITON),
    ("/v2/models/echo/generate_stream", TRITON | {"stream": True}),
    ("/endpoints/e/invocations-response-stream", LMI | {"stream": True}),
)


def test_a_server_does_not_differ_from_itself_and_its_record(
    ensemble_server: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, lines = f"http://{ensemble_server.front_end}", []
    for path, body in REQUESTS:
        sent = Request(
            path, json.dumps(body).encode(), "POST", {"content-type": "application/json"}
        )
        answer = Target(url).send(sent)
        if answer.body.isascii():
            own = {"status": answer.status, "headers": dict(answer.headers)}
            own["events"] = [[answer.seconds, answer.body.decode()]]
            lines.append({"path": path, "body": body, "answer": own})
    recorded = tmp_path / "recorded.jsonl"
    recorded.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    for against in ([], ["--against", url]):
        assert main(["replay", str(recorded), "--url", url, "--json", *against]) == 0
        report = json.loads(capsys.readouterr().out)
        assert [(e["kind"], e["path"], e["was"], e["now"]) for e in report["differences"]] == []
        assert report["judged"] == len(REQUESTS) - 1
    # A header that the new server has nowhere.
    for line in lines:
        line["answer"]["headers"]["x-own"] = "1"
    recorded.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert main(["replay", str(recorded), "--url", url, "--redact", "--allow", "50%"]) == 1
    output = capsys.readouterr().out
    assert "header  x-own  /invocations" in output
    assert "one two" not in output


@pytest.mark.parametrize(("name", "judged"), [("chromium.har", 9), ("mitmproxy.har", 3)])
def test_what_other_programs_recorded_shows_no_difference(
    name: str, judged: int, ensemble_server: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["replay", str(TESTS / "data/captures" / name), "--json"]
    status = main([*words, "--url", f"http://{ensemble_server.front_end}"])
    report = json.loads(capsys.readouterr().out)
    assert [(e["kind"], e["path"], e["was"], e["now"]) for e in report["differences"]] == []
    assert (status, report["judged"], report["problems"]) == (0, judged, [])
