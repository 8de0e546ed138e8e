"""aider: an edit of a file that the model writes, over chats and over Anthropic's messages."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from results import KEY, MODEL, URL, run

PROGRAM = Path(sys.prefix) / "bin" / "aider"
NAME = "made.txt"
WHOLE = f"{NAME}\n```\nRome\n```\n"
DIFF = f"{NAME}\n```\n<<<<<<< SEARCH\nOslo\n=======\nRome\n>>>>>>> REPLACE\n```\n"


def _edited(provider: str, edits: str, answer: str, *options: str) -> Any:
    """Return the exit status, and what the file says then."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, NAME)
        file.write_text("Oslo\n", encoding="utf-8")
        variables = {
            "OPENAI_API_KEY": KEY,
            "OPENAI_API_BASE": f"{URL}/v1",
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_API_BASE": URL,
            "HOME": folder,
        }
        done = subprocess.run(
            [
                str(PROGRAM), "--no-git", "--yes-always", "--no-check-update", "--no-pretty",
                "--analytics-disable", "--no-show-model-warnings", "--edit-format", edits,
                "--model", f"{provider}/{MODEL}", *options,
                "--message", f"SAY {json.dumps([answer])}", NAME,
            ],
            cwd=folder,
            env=os.environ | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )  # fmt: skip
        return [done.returncode, file.read_text(encoding="utf-8")]


CASES = {
    "whole": lambda: _edited("openai", "whole", WHOLE),
    "difference": lambda: _edited("openai", "diff", DIFF),
    "not_streamed": lambda: _edited("openai", "whole", WHOLE, "--no-stream"),
    "messages": lambda: _edited("anthropic", "whole", WHOLE),
}

if __name__ == "__main__":
    run(globals() | CASES)
