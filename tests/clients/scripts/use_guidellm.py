"""GuideLLM: a short load at each of OpenAI's paths, and how many of its requests failed."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from results import KEY, MODEL, URL, run

TOKENIZER = Path(__file__).resolve().parents[3] / "examples" / "tiny" / "llama"
REQUESTS = 6
TOKENS = 8


def _measured(path: str, *, streaming: bool) -> Any:
    folder = Path(tempfile.mkdtemp())
    backend = {
        "kind": "openai_http",
        "target": URL,
        "model": MODEL,
        "api_key": KEY,
        "request_format": path,
        "stream": streaming,
    }
    settings = {
        "backend": backend,
        "profile": {"kind": "concurrent", "streams": [2]},
        "constraint": {"kind": "max_requests", "count": REQUESTS},
        "tokenizer": {"kind": "hf_auto", "model": str(TOKENIZER)},
        "data": {"kind": "synthetic_text", "prompt_tokens": 12, "output_tokens": TOKENS},
        "output": {"kind": "json", "path": str(folder / "report.json")},
    }
    words = [word for name, value in settings.items() for word in (f"--{name}", json.dumps(value))]
    program = Path(sys.executable).with_name("guidellm")
    done = subprocess.run(
        [str(program), "run", *words, "--disable-console"],
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (folder / "report.json").is_file(), f"{done.stdout}{done.stderr}"[-900:]
    (measured,) = json.loads((folder / "report.json").read_text(encoding="utf-8"))["benchmarks"]
    found = measured["metrics"]["request_totals"]
    tokens = {each["output_tokens"] for each in measured["requests"]["successful"]}
    return [found["successful"], found["errored"], sorted(tokens)]


CASES = {
    "completions": lambda: _measured("/v1/completions", streaming=False),
    "completions_streamed": lambda: _measured("/v1/completions", streaming=True),
    "chats_streamed": lambda: _measured("/v1/chat/completions", streaming=True),
    "responses_streamed": lambda: _measured("/v1/responses", streaming=True),
}

if __name__ == "__main__":
    run(globals() | CASES)
