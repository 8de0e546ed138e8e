"""What a run says of the tests that a machine leaves out."""

from types import SimpleNamespace
from typing import Any

from tests.support.left_out import LeftOut


def test_a_reason_is_said_once_with_its_number_of_tests() -> None:
    reasons = {"test_a": "no A", "test_b": "no B", "test_c": "no A"}
    skipped = [
        SimpleNamespace(nodeid=name, longrepr=("file", 1, f"Skipped: {reason}"))
        for name, reason in reasons.items()
    ]
    lines: list[str] = []
    reporter: Any = SimpleNamespace(stats={"skipped": skipped}, line=lines.append)
    LeftOut().pytest_terminal_summary(reporter)
    assert lines == ["left out: 2 tests: no A", "left out: test_b: no B"]
