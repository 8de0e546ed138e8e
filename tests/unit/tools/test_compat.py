"""What `make compat` reads of pytest, writes down, and the page that is made of it."""

import json
from pathlib import Path

import compat
import compat_page
import pytest

from tests.support.places import TESTS

REPORT = """<testsuites><testsuite>
<testcase classname="tests.contract.test_engine" name="test_a[vllm]"/>
<testcase classname="tests.contract.test_engine" name="test_a[vllm mpi]"/>
<testcase classname="tests.contract.test_engine" name="test_b[vllm mpi]"><skipped/></testcase>
<testcase classname="tests.contract.test_lmi_dist" name="test_an_adapter_x[vllm mpi]"/>
<testcase classname="tests.contract.test_lmi_dist" name="test_a_killed_rank_x[vllm mpi]">
<failure>no</failure></testcase>
<testcase classname="tests.contract.test_openai_worker" name="test_c[vllm]"><error/></testcase>
<testcase classname="tests.contract.test_openai_worker" name="test_d[model0-vllm]"/>
</testsuite></testsuites>"""


def test_a_report_is_told_apart_by_what_its_tests_show() -> None:
    assert compat.read_report(REPORT) == {
        "python": {"passed": 1, "failed": []},
        "ranks": {"passed": 1, "failed": []},
        "lora": {"passed": 1, "failed": []},
        "kill": {"passed": 0, "failed": ["test_lmi_dist::test_a_killed_rank_x[vllm mpi]"]},
        "bodies": {"passed": 1, "failed": ["test_openai_worker::test_c[vllm]"]},
    }


def test_a_line_is_written_beside_the_others_and_becomes_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "compat.json"
    for name in ("vllm-0.13", "vllm-0.11"):
        found = {"date": "2026-11-23", "version": f"{name[5:]}.0", "python": "3.11.7"}
        compat.record(name, found | {"tests": compat.read_report(REPORT)}, results)
    assert list(json.loads(results.read_text(encoding="utf-8"))) == ["vllm-0.11", "vllm-0.13"]
    monkeypatch.setattr(compat_page, "RESULTS", results)
    page = list(compat_page.compat_section())
    assert "| 0.11.0 | 1 | 1 of 2 (1) | 1 | 1 | 0 of 1 (2) | 3.11.7 | 2026-11-23 |" in page
    assert "- 1: `test_openai_worker::test_c[vllm]`" in page


def test_each_line_names_tests_that_are_there() -> None:
    named = {word for line in compat.LINES for word in line.tests if word.endswith(".py")}
    assert len(named) == 7
    assert all((TESTS.parent / word).is_file() for word in named)


def test_what_was_written_is_of_lines_that_are_there() -> None:
    written = json.loads(compat.RESULTS.read_text(encoding="utf-8"))
    assert written.keys() <= {line.name for line in compat.LINES}
    assert compat_page._SERVERS.keys() == {line.name for line in compat.LINES if line.is_server}
