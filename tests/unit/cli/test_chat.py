"""A conversation on the command line, with a server whose answers are given."""

import io
import json
from typing import Any

import pytest

from tests.support.doubles.http_double import Handler, running
from tests.unit.cli.conftest import Command

CARD = {"id": "tiny", "root": "tiny", "parent": None}


class Chatting(Handler):
    """Answers a chat with the number of its messages, and refuses one that says no."""

    requests: list[tuple[str | None, Any]]

    def do_GET(self) -> None:
        self.answer(200, json.dumps({"data": [CARD]}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.requests.append((self.headers["Authorization"], body))
        messages = body["messages"]
        if messages[-1]["content"] == "no":
            self.answer(400, json.dumps({"error": {"message": "is refused", "code": 400}}))
            return
        deltas = [{"role": "assistant"}, {"content": "I have "}, {"content": f"{len(messages)}"}]
        events = [json.dumps({"choices": [{"delta": delta}]}) for delta in deltas]
        usage = json.dumps({"choices": [], "usage": {}})
        self.answer(200, "".join(f"data: {each}\n\n" for each in (*events, usage, "[DONE]")))


def test_a_conversation_has_its_history_but_what_was_refused(
    monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    requests: list[tuple[str | None, Any]] = []
    monkeypatch.setenv("LMI_API_KEY", "secret")
    monkeypatch.setattr("sys.stdin", io.StringIO("one\n\nno\ntwo\n"))
    with running(Chatting, requests=requests) as url:
        output = command("chat", "--url", url, "--system", "Be short.")
    assert output.out == "I have 2\nI have 4\n"
    assert "the server says: is refused" in output.err
    keys, bodies = zip(*requests, strict=True)
    assert {*keys} == {"Bearer secret"}
    assert [each["content"] for each in bodies[-1]["messages"]] == [
        "Be short.", "one", "I have 2", "two",
    ]  # fmt: skip
    assert bodies[0]["model"] == "tiny"


def test_nobody_to_talk_to_is_one_line(command: Command) -> None:
    errors = command("chat", "--url", "http://127.0.0.1:1", status=1).err
    assert "127.0.0.1:1: no answer" in errors
