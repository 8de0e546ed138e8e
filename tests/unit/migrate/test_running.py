"""How exchanges are sent, and what is kept of them."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.cli.main import main
from lmi_backend.migrate import kinds
from lmi_backend.migrate.judge import Judge
from lmi_backend.migrate.records import RecordedAnswer, RecordedExchange, Request
from lmi_backend.migrate.running import Replay, Target
from tests.support.doubles.http_double import Handler, running
from tests.support.run.ports import free_ports


def test_a_server_that_does_not_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (port,) = free_ports(1)
    file, answer = tmp_path / "a.jsonl", {"status": 200, "body": {}}
    records = [{"path": "/ping", "answer": answer}, {"path": "/ping"}]
    file.write_text("".join(f"{json.dumps(each)}\n" for each in records))
    words = ["replay", str(file), "--url", f"http://127.0.0.1:{port}"]
    assert main(words) == 1
    output = capsys.readouterr().out
    assert "1 requests judged, 0 (0.0 %) without a difference" in output
    assert "1 requests have no recorded answer" in output
    assert "Connection refused" in output
    assert main([*words, "--allow", "100%"]) == 0


@pytest.mark.parametrize(
    "words",
    [["--allow", "101%"], ["--allow", "x"], ["--header", "a"], ["--rate", "0"], ["--url", "x"]],
)
def test_wrong_arguments_are_refused(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"path": "/"}\n')
    try:
        status: Any = main(["replay", str(tmp_path / "a.jsonl"), *words])
    except SystemExit as stopped:
        status = stopped.code
    assert status == 2


class _Likely(Handler):
    """Answers a chat, and says how likely tokens are if it is asked."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": "one b"}}
        if body.get("logprobs"):
            near = [{"token": name, "logprob": p} for name, p in (("b", -0.70), ("a", -0.72))]
            tokens = [{"token": "one ", "logprob": 0.0, "top_logprobs": []}]
            tokens.append({"token": "b", "logprob": -0.70, "top_logprobs": near})
            choice["logprobs"] = {"content": tokens}
        self.answer(200, json.dumps({"choices": [choice]}), content_type="application/json")


@pytest.mark.parametrize(
    ("path", "recorded", "kind"),
    [
        ("/v1/chat/completions", "one a", kinds.NEAR_TIE),
        ("/v1/chat/completions", "one c", kinds.GREEDY),
        ("/v1/chat/completions", "one", kinds.GREEDY),
        ("/own", "one a", kinds.GREEDY),
    ],
)
def test_a_diverged_text_is_asked_again_for_its_probabilities(
    path: str, recorded: str, kind: str
) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": recorded}}
    was = RecordedAnswer(
        200, {"content-type": "application/json"}, json.dumps({"choices": [choice]}).encode()
    )
    request = Request(path, json.dumps({"messages": [], "temperature": 0}).encode())
    with running(_Likely) as url:
        replay = Replay(Target(url), Judge())
        (found,) = replay.one(RecordedExchange(request, was, "a")).differences
    assert (found.kind, found.place) == (kind, "choices[].message.content")
    if kind == kinds.NEAR_TIE:
        assert "-0.720" in found.was
        assert "-0.700" in found.now


class _Interrupting(Handler):
    """Answers, and presses Ctrl-C at the third request."""

    count = 0

    def do_GET(self) -> None:
        assert self.headers["x-own"] == "1"
        _Interrupting.count += 1
        if _Interrupting.count == 3:
            os.kill(os.getpid(), signal.SIGINT)
        self.answer(200)


def test_ctrl_c_reports_what_was_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"path": "/ping", "answer": {"status": 200, "body": ""}}\n' * 1000)
    with running(_Interrupting) as url:
        assert main(["replay", str(file), "--url", url, "--header", "X-Own: 1"]) == 130
    output = capsys.readouterr()
    assert "of 1000 requests" in output.err
    assert "(100.0 %) without a difference" in output.out
    assert 3 <= _Interrupting.count < 1000
