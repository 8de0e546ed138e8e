"""The command `openai`, which newer releases of the package no longer have."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from results import KEY, MODEL, URL, run

CHAT = ("chat.completions.create", "-g", "user", "What is the capital of Italy?")


def _called(*words: str, key: str = KEY) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("openai")
    reached = {"OPENAI_BASE_URL": f"{URL}/v1", "OPENAI_API_KEY": key}
    command = [str(program), "api", *words]
    return subprocess.run(
        command, env=os.environ | reached, capture_output=True, text=True, check=False
    )


def _printed(*words: str) -> str:
    return _called(*words, "-m", MODEL, "-t", "0").stdout.strip()


def unknown_model() -> Any:
    done = _called(*CHAT, "-m", "none")
    return [done.returncode, "404" in done.stderr]


def wrong_key() -> Any:
    done = _called(*CHAT, "-m", MODEL, key="wrong")
    return [done.returncode, "401" in done.stderr]


CASES = {
    "chat": lambda: _printed(*CHAT),
    "streamed": lambda: _printed(*CHAT, "--stream"),
    "completion": lambda: _printed("completions.create", "-p", "The capital of Italy is"),
    "models": lambda: f'"{MODEL}"' in _called("models.list").stdout,
}

if __name__ == "__main__":
    run(globals() | CASES)
