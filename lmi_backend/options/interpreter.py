"""The Python of the workers, and which plugins it has; nothing is imported there."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmi_backend.options.table import common as opt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.options.resolve import LmiOptions

# Reading all distributions takes 0.1 s; more means a broken interpreter.
_SECONDS = 10.0
# As workers do: PYTHONPATH counts, the current folder does not.
_LIST = """\
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import importlib.metadata, json
points = importlib.metadata.entry_points(group=sys.argv[1])
print(json.dumps([[each.name, each.value, each.dist.version] for each in points if each.dist]))
"""


@dataclass(frozen=True)
class Plugin:
    """An entry point of an installed distribution."""

    name: str
    value: str
    """Where it is, as "module:function"."""
    version: str
    """Of the distribution."""


def find_interpreter(options: LmiOptions, environment: Mapping[str, str]) -> str:
    """Return the interpreter of the workers: the one that is named, else this one.

    Raises:
        OptionError: it is no executable file.
    """
    asked = options[opt.PYTHON_EXECUTABLE]
    path = shutil.which(asked, path=environment.get("PATH")) if asked else sys.executable
    if path is None:
        raise options.error(opt.PYTHON_EXECUTABLE, "is not an executable file")
    return path


def plugins(group: str, python: str) -> tuple[Plugin, ...]:
    """Return what an interpreter's distributions offer as entry points of a group.

    Returns:
        Nothing where it cannot be asked.
    """
    return _plugins(group, python, os.environ.get("PYTHONPATH", ""))


@functools.cache
def _plugins(group: str, python: str, _path: str) -> tuple[Plugin, ...]:
    try:
        done = subprocess.run(  # noqa: S603
            (python, "-c", _LIST, group),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=True,
        )
        # A .pth file of the environment may have printed something first.
        return tuple(Plugin(*map(str, each)) for each in json.loads(done.stdout.splitlines()[-1]))
    except (OSError, ValueError, TypeError, IndexError, subprocess.SubprocessError):
        return ()
