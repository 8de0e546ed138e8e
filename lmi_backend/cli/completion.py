"""`lmi-backend completion`: what a shell needs to complete the commands."""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Final

from lmi_backend.errors import ConfigurationError
from lmi_backend.extras import pip_command

SHELLS: Final = ("bash", "zsh", "fish")


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "completion",
        help="print what a shell needs to complete these commands",
        description="Print a script that lets a shell complete commands, options and choices.",
        examples=(
            "lmi-backend completion bash > ~/.local/share/bash-completion/completions/lmi-backend",
            "lmi-backend completion zsh > ~/.zfunc/_lmi-backend",
            "lmi-backend completion fish > ~/.config/fish/completions/lmi-backend.fish",
        ),
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    parser.set_defaults(run=_completion)


def _completion(arguments: argparse.Namespace) -> int:
    try:
        shtab = importlib.import_module("shtab")
    except ImportError as error:
        raise ConfigurationError(f"completion needs {pip_command('completion')}") from error
    sys.stdout.write(f"{shtab.complete(arguments.whole, arguments.shell)}\n")
    return 0
