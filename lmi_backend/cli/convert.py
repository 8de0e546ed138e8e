"""Commands that write for Triton: convert, install-backend."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

from lmi_backend.cli.aliases import add_clients, model_names
from lmi_backend.cli.arguments import path_of
from lmi_backend.cli.folders import LmiFolder, find_models
from lmi_backend.cli.planning import Machine, add_machine, machine_of, options_of, say_notes
from lmi_backend.errors import ConfigurationError
from lmi_backend.options import LmiOptions
from lmi_backend.plan import plan_model
from lmi_backend.printable import say
from lmi_backend.repository.files import (
    command_line_properties,
    environment_properties,
    left_to_the_server,
)
from lmi_backend.repository.writer import write_alias_model, write_backend, write_model


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    convert = commands.add_parser(
        "convert",
        help="write Triton model folders for LMI folders",
        description="Write a Triton model folder for each LMI folder: its serving.properties, "
        "config.pbtxt and 1/model.py. Nothing is written if one of them cannot be served. A model "
        "store is a folder of LMI folders; without PATH it is the models that "
        "SERVING_LOAD_MODELS, SERVING_MODEL_STORE and /opt/ml/model name.",
        examples=("lmi-backend convert llama qwen --repository models",),
    )
    convert.add_argument("paths", nargs="*", metavar="PATH", help="folder or store")
    convert.add_argument("--repository", type=path_of, required=True, help="of Triton's models")
    convert.add_argument("--name", help="name of the Triton model; default: the folder's name")
    convert.add_argument("--force", action="store_true", help="write over edits made by hand")
    add_clients(convert)
    add_machine(convert)
    convert.set_defaults(run=_convert)

    install = commands.add_parser(
        "install-backend",
        help='write backends/lmi, which makes `backend: "lmi"` work in Triton',
        description="Write backends/lmi into a tritonserver's backend directory. A config.pbtxt "
        'may then say `backend: "lmi"`, and a model folder needs no 1/model.py.',
        examples=("lmi-backend install-backend /opt/tritonserver/backends",),
    )
    install.add_argument("path", type=path_of, help="Triton's backend directory")
    install.set_defaults(run=_install_backend)


def _convert(arguments: argparse.Namespace) -> int:
    models = find_models(arguments.paths, arguments.repository)
    if arguments.name:
        if len(models) > 1:
            message = f"--name {arguments.name}: names one model, but there are {len(models)}"
            raise ConfigurationError(message)
        models = [replace(models[0], name=arguments.name)]
    model_names([model.name for model in models], arguments.clients)
    ready = _check_all(models, machine_of(arguments))
    for model, options in ready:
        changed = write_model(
            model.folder,
            arguments.repository,
            model.name,
            options,
            force=arguments.force,
            from_environment=command_line_properties(model.given or ())
            + environment_properties(options),
        )
        _report(arguments.repository / model.name, changed)
        if left := left_to_the_server(options):
            say(f"{model.name}: not written, set where the server runs: {', '.join(left)}")
        for alias in arguments.clients:
            changed = write_alias_model(
                arguments.repository, model.name, alias, options, force=arguments.force
            )
            _report(arguments.repository / alias.model_name(model.name), changed)
    return 0


def _report(folder: Path, changed: list[str]) -> None:
    sys.stdout.write(f"{folder}\n")
    sys.stdout.write("".join(f"    {path} has changed\n" for path in changed))


def _check_all(models: list[LmiFolder], machine: Machine) -> list[tuple[LmiFolder, LmiOptions]]:
    """Plan every model alone: what cannot be run is refused here, not by a server in the field."""
    ready, problems, hardware = [], [], machine.hardware()
    for model in models:
        try:
            options = options_of(model, machine)
            say_notes(model.folder.name, plan_model(options, os.environ, hardware=hardware))
            ready.append((model, options))
        except ConfigurationError as error:
            problems.append(f"{model.folder}: {error}" if len(models) > 1 else str(error))
    if problems:
        raise ConfigurationError(*problems)
    return ready


def _install_backend(arguments: argparse.Namespace) -> int:
    if not arguments.path.is_dir():
        message = f"{arguments.path}: is not a folder; accepted: Triton's backend directory"
        raise ConfigurationError(message)
    sys.stdout.write(f"{write_backend(arguments.path)}\n")
    return 0
