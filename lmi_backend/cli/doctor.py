"""`lmi-backend doctor`: look at a machine, and say what to do before something fails on it."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from lmi_backend.cli.arguments import add_ports, ports_of
from lmi_backend.cli.doctor_machine import CheckResult, machine_checks
from lmi_backend.cli.doctor_models import engine_checks, model_checks
from lmi_backend.printable import log
from lmi_backend.redaction import Redactor

_MARKS = {"ok": "ok", "warning": "!!", "error": "XX"}
_COLOURS = {"ok": 32, "warning": 33, "error": 31}


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command of this module."""
    parser = commands.add_parser(
        "doctor",
        help="look at this machine, and say what to do",
        description="Look whether this machine can serve: tritonserver and its Python, the "
        "engines, MPI, GPUs and their driver, shared memory, ports, disk; and each PATH's model. "
        "Exit status 1 if something would fail.",
    )
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH", help="LMI folders to look at as well"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_ports(parser, "address for the ports")
    parser.set_defaults(run=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    ports = ports_of(arguments)
    redact = Redactor(os.environ)
    results: list[CheckResult] = []
    models = model_checks(arguments.paths) if arguments.paths else engine_checks()
    checks = (*machine_checks(ports), *models)
    for number, check in enumerate(checks, 1):
        with _progress(f"check {number} of {len(checks)}…"):
            found = check()
        if found is None:
            continue
        result = CheckResult(**redact.each(asdict(found)))
        results.append(result)
        if not arguments.json:
            _show(result)
    if arguments.json:
        sys.stdout.write(json.dumps([asdict(each) for each in results], indent=2) + "\n")
    return int(any(result.status == "error" for result in results))


@contextlib.contextmanager
def _progress(text: str) -> Iterator[None]:
    """Show a text while something is done, on a terminal only."""
    is_seen = sys.stderr.isatty() and sys.stdout.isatty()
    if is_seen:
        log(text)
    try:
        yield
    finally:
        if is_seen:
            log(f"\r{' ' * len(text)}\r")


def _marked(result: CheckResult) -> str:
    """Return a result's mark, in colour where that is seen and wanted."""
    mark = _MARKS[result.status]
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return mark
    return f"\x1b[{_COLOURS[result.status]}m{mark}\x1b[0m"


def _show(result: CheckResult) -> None:
    """Write a result as it is made: to load an engine takes its time."""
    width = max(40, min(100, _columns()))
    texts = [result.found, *([f"→ {result.advice}"] if result.advice else [])]
    what = f"  {result.what:<15} "
    indent = len(_MARKS[result.status]) + len(what)
    head = f"{_marked(result)}{what}"
    for text in texts:
        # Commands and paths have hyphens, and are copied.
        lines = textwrap.wrap(text, width - indent, break_on_hyphens=False)
        for line in lines or [""]:
            sys.stdout.write(f"{head}{line}\n")
            head = " " * indent
    sys.stdout.flush()


def _columns() -> int:
    try:
        return os.get_terminal_size().columns
    except OSError:
        return 100
