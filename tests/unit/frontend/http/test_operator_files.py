"""Files of the operator: what is read, and what is not waited for."""

import os
from pathlib import Path

from lmi_backend.frontend.http.certificate import stamp_of


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
