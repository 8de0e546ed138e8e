"""`lmi-backend check`: what becomes of each option of an LMI folder."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lmi_backend.cli.folders import model_folder
from lmi_backend.cli.planning import add_hardware, hardware_of
from lmi_backend.errors import ConfigurationError
from lmi_backend.options import LmiOptions, examine_options
from lmi_backend.options.classification import classify_unknown
from lmi_backend.options.option import Status
from lmi_backend.plan import plan_model
from lmi_backend.plan.model_source import find_interpreter
from lmi_backend.plan.refusals import refuse_unserved
from lmi_backend.printable import printable
from lmi_backend.redaction import Redactor

if TYPE_CHECKING:
    import argparse

    from lmi_backend.options.setting import Setting

REFUSED = 2
"""Exit status when something cannot be served."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command of this module."""
    parser = commands.add_parser(
        "check",
        help="show what becomes of each option of an LMI folder",
        description="Show each option of an LMI folder, where it was set, and what becomes of it: "
        "mapped, passed to the engine, ignored or refused. Exit status 2 if anything is refused.",
    )
    parser.add_argument("path", type=Path, help="folder with serving.properties")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_hardware(parser)
    parser.set_defaults(run=_check)


def _check(arguments: argparse.Namespace) -> int:
    options, errors = examine_options(model_folder(arguments.path), os.environ)
    settings = _classify(options)
    problems = [str(error) for error in errors]
    passed = set(map(id, options.passthrough.values()))
    problems += [
        f"{setting} {status.detail}"
        for setting, status in settings
        if status.word == "refused" and id(setting) in passed
    ]
    if not problems:
        try:
            refuse_unserved(plan_model(options, os.environ, hardware=hardware_of(arguments)))
        except ConfigurationError as error:
            problems.append(str(error))
    redact = Redactor(os.environ, options.secrets())
    problems = redact.each(problems)
    if arguments.json:
        rows = [redact.each(_row(setting, status)) for setting, status in settings]
        text = json.dumps({"options": rows, "problems": problems}, indent=2)
        sys.stdout.write(f"{text}\n")
    else:
        _print(settings, problems, redact)
    return REFUSED if problems else 0


def _classify(options: LmiOptions) -> list[tuple[Setting, Status]]:
    """Return each setting with its status; the engine's signature decides what is passed on."""
    judged: dict[str, Status] = {}
    if options.passthrough:
        judged = classify_unknown(options, find_interpreter(options, os.environ))
    statuses = {id(options.passthrough[name]): status for name, status in judged.items()}
    return [
        (found.setting, statuses.get(id(found.setting), found.status))
        for found in options.classifications
    ]


def _row(setting: Setting, status: Status) -> dict[str, str]:
    return {
        "name": printable(setting.name),
        "value": setting.shown,
        "origin": setting.origin,
        "status": status.word,
        "detail": status.detail,
    }


def _print(settings: list[tuple[Setting, Status]], problems: list[str], redact: Redactor) -> None:
    rows = [(redact(setting.written), setting, status) for setting, status in settings]
    width = min(60, max((len(written) for written, _, _ in rows), default=0))
    for written, setting, status in rows:
        sys.stdout.write(
            f"{setting.origin:<22} {written:<{width}} {status.word:<7}  {status.detail}\n"
        )
    for problem in problems:
        sys.stdout.write(f"refused: {problem}\n")
    if not problems:
        sys.stdout.write(f"{len(rows)} settings; nothing is refused\n")
