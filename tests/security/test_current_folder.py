"""A server started in a folder where others may write: no code of theirs is run from there."""

from pathlib import Path

import pytest

from tests.support.harm.attackers import ECHO
from tests.support.servers.harness import started

CODE = "import os; open(os.environ['MARKER'], 'a').close()\n"


def test_a_worker_imports_nothing_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "ran"
    for name in ("lmi_backend/worker/main.py", "msgspec.py", "numpy.py", "sitecustomize.py"):
        file = tmp_path / "open" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(CODE, encoding="utf-8")
    monkeypatch.chdir(tmp_path / "open")
    monkeypatch.setenv("MARKER", str(marker))
    with started(ECHO, tmp_path) as echo:
        assert echo.ask("a", max_tokens=2).text == "aa"
        assert not marker.exists()
