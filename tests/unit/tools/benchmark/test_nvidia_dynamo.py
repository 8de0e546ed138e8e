"""The start and the end of Dynamo's servers."""

import os
import subprocess
import sys
from pathlib import Path

from benchmark import dynamo_servers

_FRONT_END = """
import sys, time
print("front end", sys.argv[1:], flush=True)
time.sleep(600)
"""
# As of a release that has no such function, and whose pictures need what is not there.
_WORKER = """
import sys, time
from pathlib import Path
from vllm.v1.engine.utils import get_engine_zmq_addresses
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

def main():
    print("worker", sys.argv[1:], flush=True)
    while not Path("started").exists():
        time.sleep(0.01)
"""


def test_a_front_end_ends_with_its_worker(tmp_path: Path) -> None:
    files = {
        "dynamo/frontend/__main__.py": _FRONT_END,
        "dynamo/vllm/main.py": _WORKER,
        "vllm/v1/engine/utils.py": "",
        "transformers/models/qwen2_vl/__init__.py": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, dynamo_servers.__file__, "8000", "--model", "m"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as servers:
        assert servers.stdout is not None
        lines = {servers.stdout.readline() for _ in range(2)}
        (tmp_path / "started").touch()
        # Its end is that of all who hold it.
        assert servers.stdout.read() == ""
    assert lines == {
        "front end ['--http-host', '127.0.0.1', '--http-port', '8000']\n",
        "worker ['--model', 'm']\n",
    }
    assert servers.returncode == 0
