"""AIPerf, which measures servers of OpenAI's chats."""

import json
import subprocess
from pathlib import Path

from tests.clients.conftest import KEY
from tests.support.run.places import CLIENTS_PYTHON, TINY
from tests.support.servers.serving import Served

REQUESTS, TOKENS = 12, 16


def test_each_request_is_answered_in_full(served: Served, tmp_path: Path) -> None:
    command = [str(CLIENTS_PYTHON.parent / "aiperf"), "profile", "--model", "tiny"]
    command += ["--url", f"http://{served.front_end}", "--api-key", KEY]
    command += ["--endpoint-type", "chat", "--streaming", "--tokenizer", str(TINY / "llama")]
    command += ["--concurrency", "4", "--request-count", str(REQUESTS), "--isl", "20"]
    command += ["--osl", str(TOKENS), "--extra-inputs", "ignore_eos:true", "--ui", "none"]
    command += ["--artifact-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    profile = json.loads((tmp_path / "profile_export_aiperf.json").read_text("utf-8"))
    assert (profile["request_count"]["avg"], profile["error_summary"]) == (REQUESTS, [])
    assert profile["usage_completion_tokens"]["min"] == TOKENS
    assert "time_to_second_token" in profile
