"""Rules of docs/security.md that can be checked without a server."""

import json
import re
from pathlib import Path

import pytest

from lmi_backend.cli.main import main
from tests.support.run.places import ROOT

TOKEN = "hf_" + "aBcDeFgHiJkLmNoPqRsTuV"


def test_no_call_chooses_a_shell() -> None:
    """Ruff refuses `shell=True` and `os.system`, and lets a shell pass that a variable chooses."""
    files = {path: path.read_text("utf-8") for path in (ROOT / "lmi_backend").rglob("*.py")}
    assert not [path for path, text in files.items() if re.search(r"\bshell\s*=[^=]", text)]
    # Nor does a remark hide one of ruff's rules.
    hides = re.compile(r"noqa(?!:)|ruff: ?noqa|noqa:.*\b(S30[127]|S506|S60[245]|TID251)\b")
    assert not [path for path, text in files.items() if hides.search(text)]


def test_an_error_of_a_command_shows_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    (tmp_path / "serving.properties").write_text(f"option.dtype={TOKEN}\n", encoding="utf-8")
    assert main(["plan", str(tmp_path)]) == 2
    output = capsys.readouterr()
    assert "option.dtype=***" in output.err
    assert TOKEN not in output.out + output.err


def test_the_plan_says_whose_code_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["option.rolling_batch=echo", "option.trust_remote_code=true"]
    (tmp_path / "serving.properties").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "model.py").write_text("async def handle(inputs): ...\n", encoding="utf-8")
    assert main(["plan", str(tmp_path), "--json"]) == 0
    reasons = json.loads(capsys.readouterr().out)["reasons"]
    assert any("option.trust_remote_code" in reason for reason in reasons)
    assert any(str(tmp_path / "model.py") in reason for reason in reasons)


def test_behind_each_claim_of_the_page_stands_a_test() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:tests/)?[\w/]*test_\w+\.py)(?:::(\w+))?`", page)
    assert len(named) > 20
    for path, name in named:
        folder = "" if path.startswith("tests/") else "tests/security"
        text = (ROOT / folder / path).read_text(encoding="utf-8")
        assert f"def {name or 'test_'}" in text, (path, name)
    attacks = {path.name for path in (ROOT / "tests" / "security").glob("test_*.py")}
    assert attacks <= {path for path, _ in named}
