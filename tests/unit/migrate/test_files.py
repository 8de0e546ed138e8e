"""Files of a record: private, bounded, the newest kept."""

import json
from pathlib import Path

import pytest

from lmi_backend.migrate.recording import Files


def sizes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_the_oldest_files_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "recorded"
    for turn in range(2):
        files = Files(folder, 8000)
        for number in range(100):
            files.take({"number": turn * 100 + number, "more": "x" * 200}, 200)
        files.close()
        assert (files.written, files.dropped) == (100, 0)
        assert 4000 < sizes(folder) <= 8000
    assert folder.stat().st_mode & 0o777 == 0o700
    paths = sorted(folder.iterdir())
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}
    lines = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    numbers = [line["number"] for line in lines]
    assert numbers == list(range(numbers[0], 200))


def test_what_is_too_large_is_counted(tmp_path: Path) -> None:
    files = Files(tmp_path / "recorded", 100)
    files.take({}, 1 << 30)
    files.take({"a": "x" * 200}, 200)
    files.take({"a": 1}, 1 << 30)
    files.take({"a": 1}, 10)
    files.close()
    assert (files.written, files.dropped) == (1, 3)


def test_a_full_disk_stops_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "recorded"
    files = Files(folder, 1000)
    folder.rmdir()
    folder.write_text("")
    for _ in range(3):
        files.take({"a": 1}, 10)
    files.close()
    assert files.dropped == 3
    assert capsys.readouterr().err.count("cannot be written") == 1
