"""Files of the operator: what is read, and what is not waited for."""

import os
from pathlib import Path

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.frontend.http.certificate import MOST_BYTES, content_of, stamp_of, text_of


def test_a_file_is_read_up_to_a_bound(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"a" * MOST_BYTES)
    assert len(content_of("--x", file)) == MOST_BYTES
    with file.open("ab") as more:
        more.write(b"a")
    with pytest.raises(ConfigurationError, match=rf"\(--x\): is too large.*{MOST_BYTES}"):
        content_of("--x", file)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ConfigurationError, match="accepted: a file"):
            content_of("--x", path)
    with pytest.raises(ConfigurationError, match=r"\(--x\): No such file"):
        content_of("--x", tmp_path / "none")


def test_a_byte_that_is_no_text_is_named_by_its_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"a\nb\xff")
    with pytest.raises(ConfigurationError, match=r"file:2 \(--x\): byte 0xff; accepted: UTF-8"):
        text_of("--x", file)


def test_a_stamp_differs_after_each_change(tmp_path: Path) -> None:
    file = tmp_path / "file"
    seen = [stamp_of(file)]
    for change in (
        lambda: file.write_text("a", encoding="utf-8"),
        lambda: file.write_text("ab", encoding="utf-8"),
        lambda: os.utime(file, ns=(1, 1)),
        lambda: file.replace(tmp_path / "other"),
        lambda: file.symlink_to(tmp_path / "other"),
    ):
        change()
        seen.append(stamp_of(file))
    # The last is the file that was there, by a link.
    assert len(set(seen[:-1])) == 4
    assert seen[0] is seen[4] is None
    assert seen[5] is not None
