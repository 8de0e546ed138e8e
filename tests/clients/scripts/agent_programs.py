"""Run a coding agent in a folder of its own, behind a recorder; its tool is told to make a file."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recorder import Recorder
from results import URL

PACKAGES = Path(sys.prefix) / "node" / "node_modules"
COMMAND = "echo Rome > made.txt; cat made.txt"


def order(tool: str, **arguments: str) -> str:
    """Return a prompt by which the model calls a tool once, and then says what came of it."""
    call = json.dumps({"name": tool, "arguments": arguments})
    turns = [f"<tool_call>\n{call}\n</tool_call>", "The file says Rome."]
    return f"SAY {json.dumps(turns)}"


def sent_with(tool: str, posts: list[dict[str, Any]]) -> list[list[Any]]:
    """Return each request's path, status and streaming, and whether it offers a tool."""
    return [
        [
            each["path"], each["status"], each["body"]["stream"],
            tool in [offered.get("name") for offered in each["body"]["tools"]],
        ]
        for each in posts
    ]  # fmt: skip


@dataclass
class Agent:
    """An agent whose home and work are folders of a block."""

    home: Path
    work: Path
    recorder: Recorder

    def run(self, words: list[str], variables: dict[str, str], **more: Any) -> list[dict[str, Any]]:
        """Return the events that it prints."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
        done = subprocess.run(
            words,
            cwd=self.work,
            env=own | self.recorder.environment() | {"HOME": str(self.home)} | variables,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            **(more or {"stdin": subprocess.DEVNULL}),
        )
        assert done.returncode == 0, f"{done.stdout[-1500:]}{done.stderr[-1500:]}"
        return [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]

    @property
    def made(self) -> str:
        """What its tool wrote."""
        file = self.work / "made.txt"
        return file.read_text("utf-8") if file.is_file() else ""

    @property
    def posts(self) -> list[dict[str, Any]]:
        """The requests that it posted."""
        return [each for each in self.recorder.exchanges if each["method"] == "POST"]


@contextlib.contextmanager
def agent() -> Iterator[Agent]:
    with tempfile.TemporaryDirectory() as folder, Recorder(URL).running() as recorder:
        found = Agent(Path(folder, "home"), Path(folder, "work"), recorder)
        found.home.mkdir()
        found.work.mkdir()
        yield found
