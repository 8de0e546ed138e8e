"""`inference-perf`: a short load of each kind, and how many of its requests failed."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from results import KEY, MODEL, URL, run

TOKENIZER = Path(__file__).resolve().parents[3] / "examples" / "tiny" / "llama"
LENGTHS = {"min": 8, "max": 16, "mean": 12, "std_dev": 2}
RANDOM = {"type": "random", "input_distribution": LENGTHS, "output_distribution": LENGTHS}
REQUESTS = 6


def _measured(kind: str, *, streaming: bool) -> Any:
    folder = Path(tempfile.mkdtemp())
    measured = {
        "api": {"type": kind, "streaming": streaming},
        "data": RANDOM if kind == "completion" else {"type": "mock"},
        "load": {
            "type": "concurrent",
            "stages": [{"num_requests": REQUESTS, "concurrency_level": 2}],
            "num_workers": 1,
        },
        "server": {"type": "vllm", "model_name": MODEL, "base_url": URL, "api_key": KEY},
        "tokenizer": {"pretrained_model_name_or_path": str(TOKENIZER)},
        "storage": {"local_storage": {"path": str(folder / "report")}},
    }
    # JSON is YAML.
    (folder / "config.yaml").write_text(json.dumps(measured), encoding="utf-8")
    program = Path(sys.executable).with_name("inference-perf")
    command = [str(program), "--config_file", str(folder / "config.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    summaries = sorted(folder.rglob("*summary_lifecycle_metrics.json"))
    assert summaries, f"{done.stdout}{done.stderr}"[-900:]
    found = json.loads(summaries[-1].read_text(encoding="utf-8"))
    return [found["successes"]["count"], found["failures"]["count"]]


CASES = {
    "completions": lambda: _measured("completion", streaming=False),
    "completions_streamed": lambda: _measured("completion", streaming=True),
    "chats_streamed": lambda: _measured("chat", streaming=True),
    "messages": lambda: _measured("anthropic_messages", streaming=False),
}

if __name__ == "__main__":
    run(globals() | CASES)
