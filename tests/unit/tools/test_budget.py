"""Lines are counted by rooms, and what is over a budget is named."""

from collections import Counter
from pathlib import Path

import budget
import pytest

ROOMS = {"lmi_backend": 2, "lmi_backend/engines": 5, "lmi_backend/engines/vllm": 1}


@pytest.fixture(autouse=True)
def rooms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "BUDGETS", ROOMS)


def test_a_file_counts_in_the_deepest_room(tmp_path: Path) -> None:
    for name, lines in (("a.py", 2), ("engines/b/c.py", 3), ("engines/vllm/d.py", 4)):
        path = tmp_path / "lmi_backend" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n" * lines)
    found = budget.count(tmp_path)
    assert found == {"lmi_backend": 2, "lmi_backend/engines": 3, "lmi_backend/engines/vllm": 4}
    (line,) = budget.violations(found)
    assert line.startswith("lmi_backend/engines/vllm: 3 lines over its budget")


def test_what_was_added_is_counted_by_rooms() -> None:
    lines = ["5\t2\tlmi_backend/a.py", "0\t9\tlmi_backend/engines/vllm/b.py", "1\t1\tdocs/c.py"]
    assert budget.summed(lines) == Counter({"lmi_backend": 3, "lmi_backend/engines/vllm": -9})
