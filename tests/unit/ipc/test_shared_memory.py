import multiprocessing
import os
from pathlib import Path

import pytest

from lmi_backend.ipc import shared_memory


def test_what_a_group_left_is_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_memory, "SHARED_MEMORY", tmp_path)
    for name in ("lmi-a-0-vm-tp", "lmi-a-0-vm-pp", "lmi-a-1-vm-tp", "psm_1", "lmi-b-0-x"):
        (tmp_path / name).touch()
    shared_memory.remove_shared_memory("lmi-a-0")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["lmi-a-1-vm-tp", "lmi-b-0-x", "psm_1"]
    # A worker that is no group has no name, and must not take everybody's.
    shared_memory.remove_shared_memory("")
    assert sorted(path.name for path in tmp_path.iterdir()) == left


def test_a_semaphore_is_seen_whose_mapped_name_is_gone() -> None:
    """vLLM's processes have some, which stay when they are killed with Python's tracker."""
    lock = multiprocessing.get_context("spawn").Lock()
    path = Path(f"/dev/shm/sem.{lock._semlock.name.removeprefix('/')}")  # type: ignore[attr-defined]
    assert path in shared_memory.mapped_shared_memory([os.getpid()])
    shared_memory.remove_unmapped([path])
    assert path.exists()
    assert shared_memory.mapped_shared_memory([1 << 22]) == set()
