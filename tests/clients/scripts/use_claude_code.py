"""The loop of Claude Code: a call of its tool, the result, and the answer."""

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from recorder import Recorder
from results import KEY, MODEL, URL, run

PACKAGES = Path(sys.prefix) / "node" / "node_modules"
TOOL = "Bash"
CALL = {
    "name": TOOL,
    "arguments": {"command": "echo Rome > made.txt; cat made.txt", "description": "Make a file"},
}
TURNS = [f"<tool_call>\n{json.dumps(CALL)}\n</tool_call>", "The file says Rome."]


@functools.cache
def _done() -> tuple[list[dict[str, Any]], Recorder, str]:
    """Return the events that it prints, its exchanges, and what its tool wrote."""
    (program,) = PACKAGES.glob("@anthropic-ai/claude-code-*/claude")
    with tempfile.TemporaryDirectory() as folder, Recorder(URL).running() as recorder:
        home, work = Path(folder, "home"), Path(folder, "work")
        home.mkdir()
        work.mkdir()
        variables = {
            "CLAUDE_CONFIG_DIR": str(home / ".claude"),
            "HOME": str(home),
            "ANTHROPIC_BASE_URL": recorder.url,
            "ANTHROPIC_AUTH_TOKEN": KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        sizes = ("OPUS", "SONNET", "HAIKU")
        variables |= {f"ANTHROPIC_DEFAULT_{size}_MODEL": MODEL for size in sizes}
        done = subprocess.run(
            [
                str(program), "-p", "--model", MODEL, "--output-format", "stream-json", "--verbose",
                "--allowedTools", TOOL, "--permission-mode", "acceptEdits",
                f"SAY {json.dumps(TURNS)}",
            ],
            cwd=work,
            env=os.environ | recorder.environment() | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stdout[-1500:]}{done.stderr[-1500:]}"
        events = [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]
        made = work / "made.txt"
        return events, recorder, made.read_text("utf-8") if made.is_file() else ""


def answer() -> Any:
    """Return how it ended, and what the user reads."""
    last = _done()[0][-1]
    return [last["type"], last["subtype"], last["is_error"], last["result"]]


def tool() -> Any:
    """Return what the tool did, as the program and the disk have it."""
    parts = [
        part
        for event in _done()[0]
        if event["type"] == "user"
        for part in event["message"]["content"]
        if part["type"] == "tool_result"
    ]
    return [[[part["is_error"], part["content"]] for part in parts], _done()[2]]


def sent() -> Any:
    """Return each request's path, status and streaming, and whether it offers the tool."""
    return [
        [
            each["path"], each["status"], each["body"]["stream"],
            TOOL in [offered["name"] for offered in each["body"]["tools"]],
        ]
        for each in _done()[1].exchanges
        if each["method"] == "POST"
    ]  # fmt: skip


def result() -> Any:
    """Return the kinds of what the last request says from the call on, and the result."""
    kinds, text = [], ""
    for message in _done()[1].exchanges[-1]["body"]["messages"]:
        for part in message["content"] if isinstance(message["content"], list) else []:
            if part["type"] in ("tool_use", "tool_result"):
                kinds.append([message["role"], part["type"]])
                text = str(part.get("content", ""))
    return [kinds, text]


def others() -> Any:
    """Return whom it asks but the server."""
    return _done()[1].others


if __name__ == "__main__":
    run(globals())
