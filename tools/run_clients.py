"""Run programs that others wrote, each in an environment of its own, against one server.

    python tools/run_clients.py                      those whose version the record does not have
    python tools/run_clients.py --all                all of them
    python tools/run_clients.py --only pydantic_ai   one of them; can be repeated
    python tools/run_clients.py --keep               keep the environments
    python tools/run_clients.py --list               name them

An environment is .cache/clients/NAME; it is deleted after its program has run. What a program did
is written to tests/data/client_programs.json at once, so a run that was stopped goes on where it
was. `make docs` makes a table of docs/clients.md of it. The tests are
tests/clients/run_programs.py, whose name keeps them out of `make test`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from client_programs import PROGRAMS, Program
from compat import call_uv
from install import ENVIRONMENTS, ROOT, InstallError, uv_options
from npm_advisories import npm_of
from page_parts import table

RESULTS: Final = ROOT / "tests" / "data" / "client_programs.json"
TESTS: Final = "tests/clients/run_programs.py"
FOLDER: Final = ROOT / ".cache" / "clients"
CHOSEN: Final = "LMI_BACKEND_TEST_PROGRAMS"
"""The variable that names the programs to the tests."""
KEEP: Final = "LMI_BACKEND_TEST_KEEP"
_SHOWN: Final = 300
"""How much the record has of a reason."""


def main(arguments: list[str]) -> int:
    """Run the chosen programs and print the record; the exit status is 1 if one fails."""
    about, _, usage = str(__doc__).partition("\n")
    parser = argparse.ArgumentParser(
        "run_clients.py",
        description=about,
        epilog=usage,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", choices=PROGRAMS, metavar="NAME")
    parser.add_argument("--all", action="store_true", help="also those that have run")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    parser.add_argument("--list", action="store_true", help="name the programs and do nothing")
    parsed = parser.parse_args(arguments)
    if parsed.list:
        print("\n".join(PROGRAMS))
        return 0
    chosen = parsed.only or (list(PROGRAMS) if parsed.all else waiting(recorded()))
    status = _run_tests(chosen, is_kept=parsed.keep) if chosen else 0
    print("\n".join(programs()))
    return status


def waiting(record: Mapping[str, Any]) -> list[str]:
    """Return the programs whose pinned version the record lacks, or has as not installed."""
    done = {name for name, each in record.items() if not each["not_installed"]}
    return [
        name
        for name, program in PROGRAMS.items()
        if name not in done or record[name]["version"] != program.version
    ]


def _run_tests(names: list[str], *, is_kept: bool) -> int:
    words = [sys.executable, "-m", "pytest", "-v", "--tb=short", "--timeout=0"]
    variables = {CHOSEN: ",".join(names), KEEP: "1" if is_kept else ""}
    words += ["--show-capture=no", TESTS]
    return subprocess.run(words, cwd=ROOT, env=os.environ | variables, check=False).returncode


@contextmanager
def environment(program: Program) -> Iterator[Path]:
    """Make the environment of a program; yield its interpreter; delete it unless it is kept.

    Raises:
        InstallError: it cannot be installed, with the reason.
    """
    folder = FOLDER / program.name
    python = folder / "bin" / "python"
    cache = FOLDER / "packages"
    try:
        call_uv(cache, "venv", "--clear", "--python", program.python, str(folder))
        options = ["--python", str(python), *uv_options([sys.executable, "-m", "pip"])]
        options += ["--exclude-newer", program.day]
        # A build for CPUs may come from a folder that knows no days.
        options += ["--exclude-newer-package", "torch=false"]
        if program.of_python:
            call_uv(cache, "pip", "install", *options, *program.of_python)
        if program.of_npm:
            _install_of_npm(program, folder / "node")
        yield python
    finally:
        if not os.environ.get(KEEP):
            shutil.rmtree(folder, ignore_errors=True)


def _install_of_npm(program: Program, folder: Path) -> None:
    """Install packages of npm, with the Node.js of .venv-clients; none of their code runs.

    Raises:
        InstallError: they cannot be installed, with the reason.
    """
    npm = npm_of(ROOT / ENVIRONMENTS["clients"].folder)
    words = ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--before", program.day]
    words += ["--cache", str(FOLDER / "packages-npm"), "--prefix", str(folder), *program.of_npm]
    done = subprocess.run([*npm, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise InstallError(f"npm {' '.join(words)}\n{done.stdout}{done.stderr}".rstrip())


def judged(results: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, Any]:
    """Return which cases of a program passed, and what the others returned."""
    failed = {
        case: results.get(case)
        for case, value in expected.items()
        if case not in results or results[case] != value
    }
    passed = [case for case in expected if case not in failed]
    return {"passed": passed, "failed": failed, "not_installed": ""}


def not_installed(reason: str) -> dict[str, Any]:
    """Return what the record has of a program that cannot be installed.

    Args:
        reason: the command, and in the lines after it what it printed.
    """
    _, _, printed = reason.partition("\n")
    return {"passed": [], "failed": {}, "not_installed": " ".join(printed.split())[:_SHOWN]}


def recorded(results: Path = RESULTS) -> dict[str, Any]:
    text = results.read_text(encoding="utf-8") if results.is_file() else "{}"
    record: dict[str, Any] = json.loads(text)
    return record


def write(program: Program, outcome: Mapping[str, Any], results: Path = RESULTS) -> None:
    """Record what a program did, and keep what the others did."""
    today = f"{datetime.now(timezone.utc):%Y-%m-%d}"
    found = {"version": program.version, "date": today, **outcome}
    known = recorded(results) | {program.name: found}
    ordered = {name: known[name] for name in PROGRAMS if name in known}
    results.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


def programs(results: Path = RESULTS) -> Iterator[str]:
    record = recorded(results)
    rows = (
        (program.title, each["version"], program.url, each["date"], _outcome(each))
        for name, program in PROGRAMS.items()
        if (each := record.get(name))
    )
    yield from table(("program", "version", "set with", "run on", "what passed"), rows)


def _outcome(each: Mapping[str, Any]) -> str:
    if each["not_installed"]:
        return f"not installed: {each['not_installed']}"
    names = [*each["passed"], *each["failed"]]
    failed = ", ".join(f"`{case}`" for case in each["failed"])
    return f"{len(each['passed'])} of {len(names)}{f'; not {failed}' if failed else ''}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
