"""Files that somebody else wrote, and those of adapters."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lmi_backend.errors import ConfigurationError, PlanError
from lmi_backend.files import CONFIG, WEIGHTS, problem_of, read_bounded, seen
from lmi_backend.options import load_options
from lmi_backend.plan.model_source import find_custom
from lmi_backend.repository.files import RECORD, Record, read
from lmi_backend.sizing.config_fields import read_config
from tests.support.run.places import LORA


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert read_bounded(file, 5) == b"12345"
    with pytest.raises(OSError, match="is too large; accepted: at most 4 B"):
        read_bounded(file, 4)
    with pytest.raises(FileNotFoundError):
        read_bounded(tmp_path / "other")


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="is not a regular file"):
            read_bounded(path)


def test_sparse_files_of_a_model_are_refused_by_name(tmp_path: Path) -> None:
    """One of 20 GB costs its author nothing."""
    (tmp_path / "serving.properties").write_text("option.rolling_batch=echo\n")
    options = load_options(tmp_path, {})
    for name in ("config.json", "model.py", RECORD, "serving.properties"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        with file.open("wb") as opened:
            opened.truncate(20 << 30)
    reads = (
        lambda: read_config(tmp_path),
        lambda: find_custom(options),
        lambda: Record.read(tmp_path),
        lambda: read(tmp_path / "serving.properties"),
        lambda: load_options(tmp_path, {}),
    )
    for each in reads:
        with pytest.raises(
            (ConfigurationError, PlanError), match="is too large; accepted: at most"
        ):
            each()


RANK = 8


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(LORA, tmp_path / "a"))


def _cut(folder: Path, bytes_left: int) -> None:
    path = folder / WEIGHTS
    path.write_bytes(path.read_bytes()[:bytes_left])


def _more(folder: Path) -> None:
    with (folder / WEIGHTS).open("ab") as file:
        file.write(b"\0")


def _pipe(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    os.mkfifo(folder / WEIGHTS)


def _endless(folder: Path) -> None:
    table = b'{"a": {"data_offsets": [0, 1e400]}}'
    (folder / WEIGHTS).write_bytes(len(table).to_bytes(8, "little") + table)


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
        (_pipe, f"has no {WEIGHTS}"),
        (_endless, "cannot be read"),
        (lambda folder: _config(folder, "{"), "cannot be read"),
        (lambda folder: _config(folder, "[" * 100_000), "cannot be read"),
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
