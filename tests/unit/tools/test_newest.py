"""When CI runs the newest release of vLLM, and what may fail the build then."""

from pathlib import Path

import newest
import pytest
from overlay import OverlayError

CASE = """<testcase classname="tests.contract.test_short" name="test_a">{}
<properties><property name="fast_paths" value='{{"waits": "", "load": "gone"}}'/></properties>
</testcase>"""
PASSED, FAILED = CASE.format(""), CASE.format("<failure/>")


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """0.33.0 has run; what is tried is kept."""
    overlays: list[str] = []

    def overlay(release: str) -> Path:
        overlays.append(release)
        return tmp_path / "python"

    monkeypatch.setattr(newest, "newest_run", lambda _: "0.33.0")
    monkeypatch.setattr(newest, "overlay", overlay)
    return overlays


@pytest.mark.parametrize("release", ["0.33.0", "0.32.1", "0.9.2"])
def test_a_release_that_has_run_is_not_tried(
    release: str, tried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newest, "newest_release", lambda: release)
    assert newest.main() == 0
    assert tried == []


def test_a_registry_that_is_away_is_said(
    tried: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def away() -> str:
        raise OverlayError("no route to host")

    monkeypatch.setattr(newest, "newest_release", away)
    assert newest.main() == 0
    assert "# newest: no newest vLLM was tried: no route to host" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("report", "is_ours", "status", "message"),
    [
        (PASSED, True, 0, "vLLM 0.100.0 passes the short set without load"),
        (FAILED, True, 1, "vLLM 0.100.0 fails: test_short::test_a"),
        (FAILED, False, 0, "does not run on the libraries of the newest CPU build by itself"),
    ],
)
def test_a_newer_release_is_tried(  # noqa: PLR0917
    report: str,
    is_ours: bool,
    status: int,
    message: str,
    tried: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(newest, "newest_release", lambda: "0.100.0")
    monkeypatch.setattr(newest, "run_tests", lambda *_: report)
    monkeypatch.setattr(newest, "runs_by_itself", lambda _: is_ours)
    assert newest.main() == status
    assert tried == ["0.100.0"]
    assert message in capsys.readouterr().out
