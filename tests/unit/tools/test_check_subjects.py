import subprocess
from pathlib import Path

import check_subjects
import pytest


@pytest.mark.parametrize(
    "subject",
    [
        "frontend: buffer answers in the stub only",
        "tests, docs: generate streams without a flag",
        "engines/vllm: pass the ids that a client has",
    ],
)
def test_an_area_and_an_imperative_are_right(subject: str) -> None:
    assert check_subjects.wrong(subject) == ""


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        (f"pool: {'x' * 30} {'y' * 30}", "has 67 letters"),
        ("Refuse empty keys", "is not `area: imperative`"),
        ("pool: refuse empty keys.", "is not `area: imperative`"),
        ("pool: Refuse empty keys", "no imperative"),
        ("pool: refused empty keys", "no imperative"),
        ("pool: refusing empty keys", "no imperative"),
        ("pool: refuses empty keys", "no imperative"),
        ("wip", "is not `area: imperative`"),
    ],
)
def test_another_is_named(subject: str, why: str) -> None:
    assert why in check_subjects.wrong(subject)


def test_a_branch_is_checked_by_what_it_adds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.chdir(tmp_path)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "a")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@b")
    git("init", "-q", "-b", "other")
    git("commit", "--allow-empty", "-m", "Old")
    assert check_subjects.main([]) == 0
    assert "no main" in capsys.readouterr().out
    git("branch", "main")
    git("commit", "--allow-empty", "-m", "pool: refuse empty keys")
    assert check_subjects.main([]) == 0
    git("commit", "--allow-empty", "-m", "New")
    assert check_subjects.main([]) == 1
    assert "'New' is not" in capsys.readouterr().out
