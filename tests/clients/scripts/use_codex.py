"""The loop of Codex at `/v1/responses`: a call of its tool, the result, and the answer."""

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
TOOL = "exec_command"
CALL = {"name": TOOL, "arguments": {"cmd": "echo Rome > made.txt; cat made.txt"}}
TURNS = [f"<tool_call>\n{json.dumps(CALL)}\n</tool_call>", "The file says Rome."]


@functools.cache
def _done() -> tuple[list[dict[str, Any]], list[dict[str, Any]], str]:
    """Return the events that it prints, its exchanges, and what its tool wrote."""
    (program,) = PACKAGES.glob("@openai/codex-*/vendor/*/bin/codex")
    with tempfile.TemporaryDirectory() as folder, Recorder(URL).running() as recorder:
        home, work = Path(folder, "home"), Path(folder, "work")
        home.mkdir()
        work.mkdir()
        server = {"name": "lmi", "base_url": f"{recorder.url}/v1", "env_key": "SERVER_KEY"}
        settings = {f"model_providers.lmi.{name}": json.dumps(v) for name, v in server.items()}
        settings |= {
            "model_provider": "lmi",
            "model_providers.lmi.wire_api": "responses",
            "analytics.enabled": "false",
            "check_for_update_on_startup": "false",
        }
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        variables = {"CODEX_HOME": str(home), "HOME": str(home), "SERVER_KEY": KEY}
        done = subprocess.run(
            [
                str(program), "exec", "--json", "--skip-git-repo-check",
                "--dangerously-bypass-approvals-and-sandbox", "-m", MODEL, *words,
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
        return events, recorder.exchanges, made.read_text("utf-8") if made.is_file() else ""


def _items(kind: str) -> list[dict[str, Any]]:
    events, _, _ = _done()
    ended = [event["item"] for event in events if event["type"] == "item.completed"]
    return [item for item in ended if item["type"] == kind]


def answer() -> Any:
    """Return what the user reads."""
    return [item["text"] for item in _items("agent_message")]


def tool() -> Any:
    """Return what the tool did, as the program and the disk have it."""
    called = [
        [item["exit_code"], item["aggregated_output"]] for item in _items("command_execution")
    ]
    return [called, _done()[2]]


def sent() -> Any:
    """Return each request's path, status and streaming, and whether it offers the tool."""
    return [
        [
            each["path"], each["status"], each["body"]["stream"],
            TOOL in [offered.get("name") for offered in each["body"]["tools"]],
        ]
        for each in _done()[1]
        if each["method"] == "POST"
    ]  # fmt: skip


def result() -> Any:
    """Return the kinds of the last request's items from the call on, and the result's end."""
    items = _done()[1][-1]["body"]["input"]
    begin = [item["type"] for item in items].index("function_call")
    return [[item["type"] for item in items[begin:]], str(items[-1]["output"]).strip()[-4:]]


if __name__ == "__main__":
    run(globals())
