"""Each command's help, completion, and what is said to a word that is none."""

import argparse
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import shtab

from lmi_backend.cli.main import parser
from tests.unit.cli.conftest import Command


def commands() -> dict[str, Any]:
    (found,) = (each for each in parser()._actions if isinstance(each, argparse._SubParsersAction))
    choices: Any = found.choices
    return dict(choices)


def test_every_command_has_a_description_examples_and_statuses() -> None:
    assert [name for name, command in commands().items() if not _is_described(command)] == []


def _is_described(command: argparse.ArgumentParser) -> bool:
    description = command.description or ""
    _, _, ending = command.format_help().partition("\nexamples:\n")
    has_statuses = re.search(r"^exit status:\n  0  \S", ending, re.MULTILINE) is not None
    return description[:1].isupper() and description.endswith(".") and has_statuses


def test_every_example_is_understood() -> None:
    lines = [line for command in commands().values() for line in command.examples]
    assert len(lines) > len(commands())
    assert [line for line in lines if not _is_understood(line, parser())] == []


def _is_understood(line: str, commands: argparse.ArgumentParser) -> bool:
    words = shlex.split(line.partition(" > ")[0].partition(" >> ")[0])
    if words[0] != "lmi-backend":
        return words[0] in ("kubectl", "helm")
    try:
        commands.parse_args(words[1:])
    except SystemExit:
        return False
    return True


def test_no_command_shows_them_all(command: Command) -> None:
    errors = command(status=2).err
    assert all(f"\n    {name}" in errors for name in commands())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_reads_its_completion(shell: str, tmp_path: Path) -> None:
    script = shtab.complete(parser(), shell)
    for word in ("install-backend", "log-format"):
        assert word in script
    if shutil.which(shell):
        file = tmp_path / "script"
        file.write_text(script)
        subprocess.run([shell, "-n", str(file)], check=True)
