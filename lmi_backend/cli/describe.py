"""Commands that read options and plan, and write files or tables: options, plan, convert."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lmi_backend.cli.folders import model_folder
from lmi_backend.errors import ConfigurationError
from lmi_backend.options import OPTIONS, load_options
from lmi_backend.plan import EnginePlan, make_plan
from lmi_backend.repository.writer import write_backend, write_model

if TYPE_CHECKING:
    import argparse


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands of this module."""
    options = commands.add_parser("options", help="list every option, with what it does here")
    options.add_argument("filter", nargs="?", default="", help="only names that contain this")
    options.set_defaults(run=_options)

    plan = commands.add_parser("plan", help="show what would run for an LMI folder, and why")
    plan.add_argument("path", type=Path, help="folder with serving.properties")
    plan.add_argument("--json", action="store_true", help="print the whole plan as JSON")
    plan.set_defaults(run=_plan)

    convert = commands.add_parser("convert", help="write a Triton model folder for an LMI folder")
    convert.add_argument("path", type=Path, help="folder with serving.properties")
    convert.add_argument("--repository", type=Path, required=True, help="Triton model repository")
    convert.add_argument("--name", help="name of the Triton model; default: the folder's name")
    convert.set_defaults(run=_convert)

    install = commands.add_parser(
        "install-backend", help='write backends/lmi, which makes `backend: "lmi"` work in Triton'
    )
    install.add_argument("path", type=Path, help="Triton's backend directory")
    install.set_defaults(run=_install_backend)


def load_plan(folder: Path) -> EnginePlan:
    """Return the plan of an LMI folder under this process's environment."""
    return make_plan(load_options(folder, os.environ), os.environ)


def _options(arguments: argparse.Namespace) -> int:
    for option in OPTIONS:
        if arguments.filter not in option.name:
            continue
        default = "" if option.default in ("", 0, {}, None) else f" (default {option.default})"
        names = ", ".join((option.variable, *option.env))
        sys.stdout.write(f"{option.name}{default}\n    {option.help}\n")
        if option.fate == "mapped":
            sys.stdout.write(f"    accepted: {option.kind.accepted}. Environment: {names}\n")
    return 0


def _plan(arguments: argparse.Namespace) -> int:
    plan = load_plan(model_folder(arguments.path))
    if arguments.json:
        sys.stdout.write(json.dumps(plan.as_dict(), indent=2) + "\n")
        return 0
    devices = "; ".join(",".join(group) or "cpu" for group in plan.device_groups)
    sys.stdout.write(
        f"engine      {plan.engine}\n"
        f"model       {plan.model or '-'}\n"
        f"workers     {plan.workers} on {devices}\n"
        f"parallel    tensor {plan.tensor_parallel_degree}, pipeline "
        f"{plan.pipeline_parallel_degree}\n"
        f"requests    {plan.max_requests} at once, {plan.queue_size} queued, "
        f"{plan.request_timeout} s each\n"
        f"interpreter {plan.python}\n"
    )
    for name, value in {**plan.engine_arguments, **plan.passthrough}.items():
        sys.stdout.write(f"argument    {name}={value}\n")
    for reason in plan.reasons:
        sys.stdout.write(f"because     {reason}\n")
    return 0


def _convert(arguments: argparse.Namespace) -> int:
    source = model_folder(arguments.path)
    load_plan(source)  # what cannot be run is refused here, not by a server in the field
    folder = write_model(source, arguments.repository, arguments.name or source.resolve().name)
    sys.stdout.write(f"{folder}\n")
    return 0


def _install_backend(arguments: argparse.Namespace) -> int:
    if not arguments.path.is_dir():
        message = f"{arguments.path}: is not a folder; accepted: Triton's backend directory"
        raise ConfigurationError(message)
    sys.stdout.write(f"{write_backend(arguments.path)}\n")
    return 0
