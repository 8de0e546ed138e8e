"""When CI runs the newest release of vLLM, and what may fail the build then."""

from pathlib import Path

import newest
import pytest
from overlay import OverlayError

CASE = """<testcase classname="tests.contract.test_short" name="test_a">{}
<properties><property name="fast_paths" value='{{"waits": "", "load": "gone"}}'/></properties>
</testcase>"""
PASSED, FAILED = CASE.format(""), CASE.format("<failure/>")
AWAY = "# newest: no newest vLLM was tried: no route to host"


@pytest.mark.parametrize(
    ("release", "report", "is_ours", "status", "message"),
    [
        # 0.33.0 has run.
        ("0.33.0", "", True, 0, ""),
        ("0.32.1", "", True, 0, ""),
        ("0.9.2", "", True, 0, ""),
        ("", "", True, 0, AWAY),
        ("0.100.0", PASSED, True, 0, "vLLM 0.100.0 passes the short set without load"),
        ("0.100.0", FAILED, True, 1, "vLLM 0.100.0 fails: test_short::test_a"),
        ("0.100.0", FAILED, False, 0, "on the libraries of the newest CPU build by itself"),
    ],
)
def test_a_newer_release_is_tried(  # noqa: PLR0917
    release: str,
    report: str,
    is_ours: bool,
    status: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tried: list[str] = []

    def newest_release() -> str:
        if not release:
            raise OverlayError("no route to host")
        return release

    def overlay(version: str) -> Path:
        tried.append(version)
        return Path("python")

    monkeypatch.setattr(newest, "newest_run", lambda _: "0.33.0")
    monkeypatch.setattr(newest, "overlay", overlay)
    monkeypatch.setattr(newest, "newest_release", newest_release)
    monkeypatch.setattr(newest, "run_tests", lambda *_: report)
    monkeypatch.setattr(newest, "runs_by_itself", lambda _: is_ours)
    assert newest.main() == status
    assert tried == ([release] if report else [])
    assert message in capsys.readouterr().out
