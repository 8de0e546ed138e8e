"""What `make compat` reads of pytest, writes down, and the page that is made of it."""

import json
from pathlib import Path

import compat
import compat_lines
import compat_page
import pytest
import vllm_builds

REPORT = """<testsuites><testsuite>
<testcase classname="tests.contract.test_engine" name="test_a[vllm]"/>
<testcase classname="tests.contract.test_engine" name="test_a[vllm mpi]"/>
<testcase classname="tests.contract.test_engine" name="test_b[vllm mpi]"><skipped/></testcase>
<testcase classname="tests.contract.test_lmi_dist" name="test_an_adapter_x[vllm mpi]"/>
<testcase classname="tests.contract.test_lmi_dist" name="test_a_killed_rank_x[vllm mpi]">
<failure>no</failure></testcase>
<testcase classname="tests.contract.test_openai_worker" name="test_c[vllm]"><error/></testcase>
<testcase classname="tests.contract.test_openai_worker" name="test_d[model0-vllm]"><properties>
<property name="fast_paths" value='{"waits": "", "media": "gone"}'/></properties></testcase>
<testcase classname="tests.contract.test_short" name="test_an_adapter_answers[vllm]"><properties>
<property name="fast_paths" value='{"waits": "", "media": ""}'/></properties></testcase>
</testsuite></testsuites>"""


def test_a_report_is_told_apart_by_what_its_tests_show() -> None:
    assert compat.read_report(REPORT) == {
        "short": {"passed": 1, "failed": []},
        "python": {"passed": 1, "failed": []},
        "ranks": {"passed": 1, "failed": []},
        "lora": {"passed": 1, "failed": []},
        "kill": {"passed": 0, "failed": ["test_lmi_dist::test_a_killed_rank_x[vllm mpi]"]},
        "bodies": {"passed": 1, "failed": ["test_openai_worker::test_c[vllm]"]},
    }
    assert compat.read_fast_paths(REPORT) == {"waits": "", "media": "gone"}
    assert compat.read_fast_paths("<testsuites/>") == {}


def test_a_short_run_keeps_what_the_other_tests_did_with_its_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "compat.json"
    short = {"short": {"passed": 14, "failed": []}}
    runs = [
        ("2026-11-01", "0.13.0", {"python": {"passed": 19, "failed": []}} | short),
        ("2026-11-02", "0.13.0", {"short": {"passed": 13, "failed": ["test_short::test_a"]}}),
    ]
    for day, version, tests in runs:
        found = {"date": day, "version": version, "python": "3.11.7", "tests": tests}
        compat.record("vllm-0.13.0", found, results)
    monkeypatch.setattr(compat_page, "RESULTS", results)
    assert "| 0.13.0 | 32 of 33 | 2026-11-01 |" in list(compat_page.vllm_releases())
    # What an older release did says nothing of a newer one.
    newer = {"date": "2026-11-03", "version": "0.14.0", "python": "3.11.7", "tests": short}
    compat.record("vllm-0.13.0", newer, results)
    assert json.loads(results.read_text(encoding="utf-8"))["vllm-0.13.0"] == newer


def test_all_tests_run_on_the_last_build_of_a_minor_version_alone() -> None:
    lines = {line.name: line for line in compat.LINES if not line.is_server}
    assert lines["vllm-0.11.2"].tests == compat.SHORT
    assert lines["vllm-0.11.2.post2"].tests == compat_lines.WHOLE
    assert lines["vllm-0.27.1"].tests == compat_lines.WHOLE
    assert lines["vllm-0.27.0"].tests == compat.SHORT
    # What `make install` installs, and what is laid over it.
    (locked,) = [line.name for line in lines.values() if line.folder]
    assert lines.keys() >= {f"vllm-{version}" for version in vllm_builds.builds()}
    assert list(lines)[-2:] == [locked, "vllm-overlay"]


METADATA = "Metadata-Version: 2.1\n"


@pytest.mark.parametrize("knows", [True, False])
def test_a_build_gets_the_torch_and_the_packages_of_its_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, knows: bool
) -> None:
    monkeypatch.setattr(compat, "_knows_its_platform", lambda _: knows)
    called: list[tuple[str, ...]] = []
    monkeypatch.setattr(compat, "FOLDER", tmp_path)
    monkeypatch.setattr(compat, "call_uv", lambda cache, *words: called.append(words))
    # Of a torch that no line needs any more.
    (tmp_path / "packages-1.0").mkdir()
    line = next(line for line in compat.LINES if line.name == "vllm-0.26.0")
    packages = tmp_path / line.name / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    python = compat.install_line(line)
    written = [each.read_text("utf-8") for each in packages.glob("*.dist-info/METADATA")]
    assert written == ([] if knows else [f"{METADATA}Name: vllm\nVersion: 0.26.0+cpu\n"])
    assert called[-1][-5:] == line.packages
    position = called[-1].index("--exclude-newer")
    assert called[-1][position + 1] == "2026-08-01"
    overrides = (tmp_path / line.name / "overrides.txt").read_text(encoding="utf-8")
    assert overrides.startswith("torch==2.11.0\n")
    assert not (tmp_path / "packages-1.0").exists()
    assert compat.install_line(line) == python
    assert len(called) == 2
    # A worktree that shares the cache has another path to it.
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.setattr(compat, "FOLDER", tmp_path / "link")
    compat.install_line(line)
    assert [words[:2] for words in called[2:]] == [("venv", "--clear"), ("pip", "install")]
