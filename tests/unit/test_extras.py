import re
import subprocess
from pathlib import Path

import pytest

from lmi_backend.extras import pip_command

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("extra", ["server", "frontend", "mpi"])
def test_the_command_names_what_the_extra_brings(extra: str) -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (declared,) = re.findall(rf"^{extra} = \[(.+)\]$", text, re.MULTILINE)
    command = pip_command(extra).strip("`")
    words = subprocess.run(
        ["sh", "-c", f'for word in {command}; do echo "$word"; done'],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    assert words[:2] == ["pip", "install"]
    assert set(words[2:]) - {""} == set(re.findall(r'"([^"]+)"', declared))


def test_nothing_tells_people_to_install_what_is_on_no_index() -> None:
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("deploy/*.md")]
    files += (ROOT / "lmi_backend").rglob("*.py")
    wrong = re.compile(
        r"pip install [\"']?lmi-backend\b(?!\[extra\])|(?<!`pip install )lmi-backend\["
    )
    found = [str(path) for path in files if wrong.search(path.read_text(encoding="utf-8"))]
    assert len(files) > 200
    assert found == []
