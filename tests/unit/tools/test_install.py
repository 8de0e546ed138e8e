"""Which Python may install, and from where."""

import base64
import csv
import hashlib
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tools import install
from tools.install import ENVIRONMENTS, Environment, uv_options

ROOT = Path(__file__).resolve().parents[3]


def test_an_old_python_is_refused_in_one_line() -> None:
    code = "import sys; sys.version_info = (3, 8, 0); sys.argv = ['install.py', 'server']; "
    code += "sys.path.insert(0, 'tools'); "
    code += "import runpy; runpy.run_path('tools/install.py', run_name='__main__')"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "is Python 3.8; accepted: 3.11 or 3.12" in done.stderr


def test_an_engine_below_a_path_with_a_blank_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder := tmp_path / "a b").mkdir()
    monkeypatch.setattr(install, "ROOT", folder)
    assert install.main([install.FASTEST, "engine"]) == 1
    assert capsys.readouterr().err.endswith("accepted: a path without a blank\n")


def test_uv_is_told_where_pip_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://one/simple\nfind-links = /a\n    /b\ntimeout = 9\n"
        "[install]\nextra-index-url = https://two/simple https://three/simple\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    options = uv_options([sys.executable, "-m", "pip"])
    pairs = set(zip(options[::2], options[1::2], strict=True))
    more = {("--extra-index-url", f"https://{name}/simple") for name in ("two", "three")}
    places = {("--index-url", "https://one/simple"), ("--find-links", "/a"), ("--find-links", "/b")}
    assert places | more <= pairs
    monkeypatch.setenv("PIP_FIND_LINKS", "/c")
    options = uv_options([sys.executable, "-m", "pip"])
    assert "/c" in options
    assert "/a" not in options


@pytest.mark.parametrize("environment", ENVIRONMENTS.values(), ids=list(ENVIRONMENTS))
def test_a_file_of_two_packages_is_the_later_one_s(environment: Environment) -> None:
    """Packages are installed at once: which of two is the last to write a file is chance."""
    for folder in (ROOT / environment.folder).glob("lib/python3*/site-packages"):
        owners: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for record in folder.glob("*.dist-info/RECORD"):
            package = record.parent.name.partition("-")[0].replace("_", "-")
            with record.open(encoding="utf-8", newline="") as lines:
                for path, digest, _ in csv.reader(lines):
                    if digest and not path.startswith(".."):
                        owners[path][package] = digest
        for path, digests in owners.items():
            if len(set(digests.values())) > 1:
                del digests[environment.first]
                (digest,) = set(digests.values())
                content = hashlib.sha256((folder / path).read_bytes()).digest()
                have = base64.urlsafe_b64encode(content).decode().rstrip("=")
                assert digest == f"sha256={have}", path
