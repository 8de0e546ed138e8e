"""Dynamo's packages: installed once, or skipped with the reason; and the start of its servers."""

import os
import subprocess
import sys
from pathlib import Path

import bench
import pytest
from benchmark import dynamo_servers, nvidia_dynamo
from overlay import OverlayError

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


def test_packages_are_installed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def run(*words: str) -> str:
        asked.append(words)
        Path(words[words.index("--target") + 1]).mkdir()
        return ""

    monkeypatch.setattr(nvidia_dynamo, "run", run)
    folders = {nvidia_dynamo.installed(tmp_path / "cache") for _ in range(2)}
    assert folders == {tmp_path / "cache" / f"dynamo-{nvidia_dynamo.RELEASE}"}
    assert folders.pop().is_dir()
    assert [f"ai-dynamo=={nvidia_dynamo.RELEASE}" in words for words in asked] == [True]


def test_what_cannot_be_had_is_skipped_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: str) -> str:
        raise OverlayError("no registry")

    monkeypatch.setattr(nvidia_dynamo, "run", run)
    monkeypatch.setattr(nvidia_dynamo, "ROOT", tmp_path)
    monkeypatch.setattr(bench, "find_perf_analyzer", lambda folder: folder)
    # The signal that ends a benchmark ends this process as before.
    monkeypatch.setattr(bench.signal, "signal", lambda *_: None)
    assert bench.main(["--targets", "Dynamo", "--step-ms", "0", "--output", str(tmp_path)]) == 0
    skipped = "Dynamo was skipped: Dynamo's packages cannot be had: no registry"
    assert skipped in capsys.readouterr().out
    assert not [*(tmp_path / ".cache").iterdir()]


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
