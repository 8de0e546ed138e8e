"""How much memory is left, in a container and without one."""

from pathlib import Path

import psutil
import pytest

from lmi_backend.pool.memory import available_memory

MIB = 1 << 20


@pytest.mark.parametrize(
    ("limit", "left"),
    [
        # As Linux 6.1 writes these files: 300 MiB are used, 100 of them for files nobody uses.
        (f"{512 * MIB}\n", 312 * MIB),
        ("max\n", None),
    ],
)
def test_the_limit_of_a_container_counts(tmp_path: Path, limit: str, left: int | None) -> None:
    (tmp_path / "memory.max").write_text(limit)
    (tmp_path / "memory.current").write_text(f"{300 * MIB}\n")
    (tmp_path / "memory.stat").write_text(f"anon {200 * MIB}\ninactive_file {100 * MIB}\n")
    found = available_memory(tmp_path)
    if left is None:
        assert found == pytest.approx(psutil.virtual_memory().available, rel=0.2)
    else:
        assert found == left


def test_without_control_groups_the_machine_counts(tmp_path: Path) -> None:
    assert available_memory(tmp_path) == pytest.approx(psutil.virtual_memory().available, rel=0.2)
