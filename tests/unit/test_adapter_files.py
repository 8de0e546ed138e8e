"""What can be told of an adapter's files before an engine reads them."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lmi_backend.adapter_files import CONFIG, WEIGHTS, problem_of, seen
from tests.support.places import ROOT

RANK = 8


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / ".cache" / "tiny" / "lora", tmp_path / "a"))


def _cut(folder: Path, bytes_left: int) -> None:
    path = folder / WEIGHTS
    path.write_bytes(path.read_bytes()[:bytes_left])


def _more(folder: Path) -> None:
    with (folder / WEIGHTS).open("ab") as file:
        file.write(b"\0")


def _config(folder: Path, text: str) -> None:
    (folder / CONFIG).write_text(text)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder: _cut(folder, -1), "is broken: it has"),
        (lambda folder: _cut(folder, 100), "is broken: 100 bytes"),
        (lambda folder: _cut(folder, 4), "is broken: 4 bytes"),
        (lambda folder: _cut(folder, 0), "cannot be read"),
        (_more, "is broken"),
        (lambda folder: (folder / WEIGHTS).write_bytes(b"\xff" * 100), "is broken: 100 bytes"),
        (lambda folder: (folder / WEIGHTS).unlink(), f"has no {WEIGHTS}"),
        (lambda folder: _config(folder, "{"), "cannot be read"),
        (lambda folder: _config(folder, "[]"), "cannot be read"),
        (lambda folder: _config(folder, "{}"), "cannot be read"),
        (lambda folder: _config(folder, '{"r": "8"}'), "cannot be read"),
        (lambda folder: _config(folder, '{"r": 9}'), "r=9; accepted: at most option.max_lora_rank"),
        (lambda folder: (folder / CONFIG).unlink(), CONFIG),
        (shutil.rmtree, CONFIG),
    ],
)
def test_what_no_engine_could_load_has_a_reason(
    folder: Path, change: Callable[[Path], object], words: str
) -> None:
    assert problem_of(str(folder), RANK) == ""
    before = seen(str(folder))
    change(folder)
    problem = problem_of(str(folder), RANK)
    assert words in problem
    # Any client reads it.
    assert str(folder) not in problem
    assert seen(str(folder)) != before


def test_older_weights_are_left_to_the_engine(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "adapter_model.bin")
    assert problem_of(str(folder), RANK) == ""


def test_the_same_bytes_of_another_file_are_seen(folder: Path) -> None:
    """A file that is written again, with the time of the one before."""
    path, before = folder / WEIGHTS, seen(str(folder))
    times = path.stat()
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert seen(str(folder)) != before
    assert seen("/nowhere") == seen("org/name") == frozenset()


def test_the_tiny_adapter_has_the_rank_of_these_tests(folder: Path) -> None:
    assert json.loads((folder / CONFIG).read_text())["r"] == RANK
