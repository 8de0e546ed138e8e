"""The loop of opencode over its three ways to a server: chats, Anthropic's messages, Responses."""

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
TOOL = "bash"
COMMAND = "echo Rome > made.txt; cat made.txt"
CALL = {"name": TOOL, "arguments": {"command": COMMAND, "description": "makes a file"}}
TURNS = [f"<tool_call>\n{json.dumps(CALL)}\n</tool_call>", "The file says Rome."]
COMPATIBLE = {"npm": "@ai-sdk/openai-compatible", "name": "lmi"}
"""A provider that opencode does not know by its name."""


@functools.cache
def _done(provider: str) -> tuple[list[str], str, list[list[Any]]]:
    """Return the texts that it prints, what its tool wrote, and its exchanges."""
    # One build runs on older processors too.
    (program,) = PACKAGES.glob("opencode-linux-*-baseline/bin/opencode")
    with tempfile.TemporaryDirectory() as folder, Recorder(URL).running() as recorder:
        home, work = Path(folder, "home"), Path(folder, "work")
        home.mkdir()
        work.mkdir()
        limit = {"limit": {"context": 100_000, "output": 4_000}}
        options = {"baseURL": f"{recorder.url}/v1", "apiKey": KEY}
        settings = {
            "provider": {
                provider: {"options": options, "models": {MODEL: {"name": MODEL} | limit}}
                | (COMPATIBLE if provider == "lmi" else {})
            },
            "autoupdate": False,
            "share": "disabled",
        }
        (work / "opencode.json").write_text(json.dumps(settings), encoding="utf-8")
        # It works where `PWD` says.
        own = {"HOME": str(home), "PWD": str(work), "OPENCODE_DISABLE_MODELS_FETCH": "1"}
        done = subprocess.run(
            [
                str(program), "run", "--pure", "--auto", "--format", "json", "-m",
                f"{provider}/{MODEL}",
            ],
            cwd=work,
            env=_without_folders(os.environ) | recorder.environment() | own,
            # Of its arguments it would quote what has spaces.
            input=f"SAY {json.dumps(TURNS)}",
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stdout[-1500:]}{done.stderr[-1500:]}"
        events = [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]
        texts = [event["part"]["text"] for event in events if event["type"] == "text"]
        made = work / "made.txt"
        # It asks for a title beside them, without tools.
        sent = [
            [each["path"], each["status"], each["body"].get("stream")]
            for each in recorder.exchanges
            if each["method"] == "POST" and each["body"].get("tools")
        ]
        return texts, made.read_text("utf-8") if made.is_file() else "", sent


def _without_folders(variables: Any) -> dict[str, str]:
    return {name: value for name, value in variables.items() if not name.startswith("XDG_")}


def chat() -> Any:
    return _done("lmi")


def messages() -> Any:
    return _done("anthropic")


def responses() -> Any:
    return _done("openai")


if __name__ == "__main__":
    run(globals())
