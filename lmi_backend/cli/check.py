"""`lmi-backend check`: what becomes of each option of an LMI folder."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from lmi_backend.cli.folders import LmiFolder, add_model, models_at
from lmi_backend.cli.planning import Machine, add_machine, machine_of
from lmi_backend.errors import ConfigurationError, OptionError
from lmi_backend.options import LmiOptions, examine_options
from lmi_backend.options.classification import classify_unknown
from lmi_backend.options.engine_choice import find_interpreter
from lmi_backend.options.signature import query_if_unknown, release_and_why
from lmi_backend.options.spec import Status
from lmi_backend.options.table import find_option
from lmi_backend.plan import EnginePlan, plan_model
from lmi_backend.plan.model_source import find_custom
from lmi_backend.plan.multi_model import plan_together
from lmi_backend.printable import printable, say
from lmi_backend.redaction import Redactor

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from lmi_backend.options.spec import WrittenSetting
    from lmi_backend.plan.hardware import Hardware

_Settings: TypeAlias = "list[tuple[WrittenSetting, Status]]"

REFUSED = 2
"""Exit status when something cannot be served."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "check",
        help="show what becomes of each option of an LMI folder",
        description="Show what would run for an LMI folder in one line. Then show each option: "
        "where it is set, and whether it is mapped, passed to the engine, ignored or refused. "
        "The last line names the release of the engine that judged them: the installed one, else "
        "the recorded one. An installed release of vLLM that is unknown is queried once.",
        examples=(
            "lmi-backend check llama --gpus 8 --gpu-memory 80GiB",
            "lmi-backend check Qwen/Qwen3-0.6B --tensor-parallel-size 2",
        ),
        takes_flags=True,
        statuses={0: "no option is refused", 2: "an option is refused"},
    )
    add_model(parser, "a folder with serving.properties")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_machine(parser)
    parser.set_defaults(run=_check)


def _check(arguments: argparse.Namespace) -> int:
    models = models_at(arguments)
    machine = machine_of(arguments)
    hardware = machine.hardware()
    examined = examine(models, machine, hardware)
    queried = [_query(each.options) for each in examined]
    if any(queried):
        examined = examine(models, machine, hardware)
    if arguments.json:
        rows = [each.as_dict() for each in examined]
        text = json.dumps(rows if len(rows) > 1 else rows[0], indent=2)
        sys.stdout.write(f"{text}\n")
    else:
        for each in examined:
            _print(each)
    return REFUSED if any(each.problems for each in examined) else 0


@dataclass(frozen=True)
class Examined:
    name: str
    options: LmiOptions
    settings: _Settings
    problems: list[str]
    plan: EnginePlan | None
    release: str
    """Of the engine, by which the settings are judged, and why this one; empty for none."""
    redact: Redactor

    @property
    def what(self) -> str:
        if self.plan is None:
            choice = self.options.choice
            return f"{self.name}: engine {choice.engine}, {choice.mode} mode; it cannot be planned"
        parallel = self.plan.parallel
        return (
            f"{self.name}: engine {self.plan.engine}, {parallel.mode} mode, "
            f"{self.plan.num_workers} worker(s), each tensor parallel "
            f"{parallel.tensor_parallel_degree}, pipeline parallel "
            f"{parallel.pipeline_parallel_degree}"
        )

    @property
    def notes(self) -> list[str]:
        notes = self.plan.notes if self.plan else ()
        return [self.redact(note) for note in notes if " is ignored: " not in note]

    @property
    def rows(self) -> list[dict[str, str]]:
        return [row_of(setting, status) for setting, status in self.settings]

    def as_dict(self) -> dict[str, object]:
        return {
            "model": self.name,
            "what": self.what,
            "options": [self.redact.each(row) for row in self.rows],
            "notes": self.notes,
            "problems": self.problems,
            "release": self.release,
        }


def examine(models: Sequence[LmiFolder], machine: Machine, hardware: Hardware) -> list[Examined]:
    read: dict[str, tuple[LmiOptions, _Settings, list[str]]] = {}
    for model in models:
        options, errors = examine_options(model.folder, os.environ, model.given)
        options = machine.supposed(options)
        settings = _classify(options)
        passed = set(map(id, options.passthrough.values()))
        refused = (
            f"{setting} {status.detail}"
            for setting, status in settings
            if status.word == "refused" and id(setting) in passed
        )
        read[model.name] = options, settings, [*map(str, errors), *refused]
    planned = {name: options for name, (options, _, problems) in read.items() if not problems}
    plans = plan_together(planned, hardware, _plan_one)
    return [_examined(name, *each, plans.get(name)) for name, each in read.items()]


def _plan_one(options: LmiOptions, hardware: Hardware) -> EnginePlan:
    must_start = not options.for_another_machine
    return plan_model(options, os.environ, hardware=hardware, must_start=must_start)


def _examined(
    name: str,
    options: LmiOptions,
    settings: _Settings,
    problems: list[str],
    made: EnginePlan | ConfigurationError | None,
) -> Examined:
    plan = made if isinstance(made, EnginePlan) else None
    if isinstance(made, ConfigurationError):
        problems = [str(made)]
    ignored = plan.ignored if plan else {}
    fates = {id(options.settings.get(name)): Status("ignored", ignored[name]) for name in ignored}
    if isinstance(made, OptionError):
        named = (
            each for each, _ in settings if (each.name, each.origin) == (made.option, made.origin)
        )
        fates = {id(each): Status("refused", made.problem) for each in named}
    settings = [(each, fates.get(id(each), status)) for each, status in settings]
    redact = Redactor(os.environ, options.secrets())
    release = redact(_release(options))
    return Examined(name, options, settings, redact.each(problems), plan, release, redact)


def _classify(options: LmiOptions) -> _Settings:
    statuses: dict[int, Status] = {}
    if _has_handler(options):
        written = {**options.settings, **options.passthrough}
        statuses = {id(each): _to_handler(name, options) for name, each in written.items()}
    elif options.passthrough:
        judged = classify_unknown(options, find_interpreter(options, os.environ))
        statuses = {id(options.passthrough[name]): status for name, status in judged.items()}
    return [
        (classification.setting, statuses.get(id(classification.setting), classification.status))
        for classification in options.classifications
    ]


def _query(options: LmiOptions) -> bool:
    """Query an engine of an unknown release for what it takes; tell whether it answered."""
    try:
        return query_if_unknown(options, find_interpreter(options, os.environ), say)
    except OptionError:
        return False


def _has_handler(options: LmiOptions) -> bool:
    """Tell whether a handler of the user answers, which gets every option as it is written."""
    try:
        custom = find_custom(options)
    except ConfigurationError:
        # The plan says it.
        return False
    return custom is not None and custom.replaces_engine


def _to_handler(name: str, options: LmiOptions) -> Status:
    option = find_option(name, options.choice.engine)
    also = f", and used as {option.plan_field}" if option and option.plan_field else ""
    return Status("passed", f"the handler gets it{also}")


def _release(options: LmiOptions) -> str:
    try:
        return release_and_why(options, find_interpreter(options, os.environ))
    except OptionError:
        return ""


def row_of(setting: WrittenSetting, status: Status) -> dict[str, str]:
    return {
        "name": printable(setting.name),
        "value": setting.redacted,
        "origin": setting.origin,
        "status": status.word,
        "detail": status.detail,
    }


def _print(examined: Examined) -> None:
    sys.stdout.write(f"{examined.redact(examined.what)}\n")
    rows = [
        (examined.redact(setting.written), setting, status) for setting, status in examined.settings
    ]
    width = min(60, max((len(written) for written, _, _ in rows), default=0))
    for written, setting, status in rows:
        sys.stdout.write(
            f"{setting.origin:<22} {written:<{width}} {status.word:<7}  {status.detail}\n"
        )
    for note in examined.notes:
        sys.stdout.write(f"note: {note}\n")
    for problem in examined.problems:
        sys.stdout.write(f"refused: {problem}\n")
    if not examined.problems:
        sys.stdout.write(f"{len(rows)} settings; nothing is refused\n")
    if examined.release:
        release = printable(examined.release)
        sys.stdout.write(f"judged by {release}; other releases may refuse less or more\n")
