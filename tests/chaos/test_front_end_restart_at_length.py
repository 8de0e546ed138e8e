"""`lmi-backend restart --front-end`, where the front end has several processes."""

from pathlib import Path

from tests.chaos.test_front_end_restart import check_restart, serving
from tests.support.chaos_report import Report


def test_two_processes_are_replaced_in_turn(tmp_path: Path, report: Report) -> None:
    with serving(tmp_path, 2) as served:
        check_restart(served, report)
