"""The command `llm`, with models of its extra-openai-models.yaml."""

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from orders import CHOSEN, LOOP, TEXT
from results import KEY, MODEL, URL, run

PROGRAM = Path(sys.prefix) / "bin" / "llm"
ABILITIES = {"chat": "supports_schema", "tools": "supports_tools", "text": "completion"}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = "def weather(city: str) -> str:\n    'Return the weather.'\n    return city + ' is sunny'"


@functools.cache
def _folder() -> str:
    folder = Path(tempfile.mkdtemp())
    known = "".join(
        f"- model_id: {name}\n  model_name: {MODEL}\n  api_base: {URL}/v1\n  api_key_name: lmi\n"
        f"  {ability}: true\n"
        for name, ability in ABILITIES.items()
    )
    (folder / "extra-openai-models.yaml").write_text(known, encoding="utf-8")
    (folder / "keys.json").write_text(json.dumps({"lmi": KEY}), encoding="utf-8")
    return str(folder)


def _printed(*words: str) -> Any:
    """Return the exit status and what it prints."""
    done = subprocess.run(
        [str(PROGRAM), *words],
        env=os.environ | {"LLM_USER_PATH": _folder()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return [done.returncode, done.stdout.strip()]


CASES = {
    "streamed": lambda: _printed("-m", "chat", "-s", "Be terse.", TEXT),
    "whole": lambda: _printed(
        "-m", "chat", "--no-stream", "-o", "seed", "1", "-o", "max_tokens", "50", TEXT
    ),
    "completion": lambda: _printed("-m", "text", "-o", "max_tokens", "50", TEXT),
    "structured": lambda: _printed("-m", "chat", "--schema", json.dumps(SCHEMA), CHOSEN),
    "tool": lambda: _printed("-m", "tools", "--functions", TOOL, LOOP),
    "tool_whole": lambda: _printed("-m", "tools", "--no-stream", "--functions", TOOL, LOOP),
}

if __name__ == "__main__":
    run(globals() | CASES)
