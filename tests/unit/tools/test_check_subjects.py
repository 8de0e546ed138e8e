import subprocess
from pathlib import Path

import check_subjects
import pytest


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        ("frontend: buffer answers in the stub only", ""),
        ("tests, docs: generate streams without a flag", ""),
        (f"pool: {'x' * 30} {'y' * 30}", "has 67 letters"),
        ("Refuse empty keys", "is not `area: imperative`"),
        ("pool: refuse empty keys.", "is not `area: imperative`"),
        ("pool: Refuse empty keys", "no imperative"),
        ("pool: refused empty keys", "no imperative"),
        ("pool: refuses empty keys", "no imperative"),
    ],
)
def test_another_than_an_area_and_an_imperative_is_named(subject: str, why: str) -> None:
    found = check_subjects.wrong(subject)
    assert why in found if why else not found


def test_a_branch_is_checked_by_what_it_adds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def commit(subject: str) -> None:
        user = ("-c", "user.name=a", "-c", "user.email=a@b")
        words = ("git", *user, "commit", "-q", "--allow-empty", "-m", subject)
        subprocess.run(words, check=True)

    subprocess.run(["git", "init", "-q", "-b", "other"], check=True)
    commit("Old")
    assert check_subjects.main([]) == 0
    for subject, status in (("", 1), ("pool: refuse empty keys", 0), ("New", 1)):
        commit(subject) if subject else subprocess.run(["git", "branch", "main"], check=True)
        assert check_subjects.main([]) == status
