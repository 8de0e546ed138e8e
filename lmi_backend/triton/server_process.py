"""Close or report what tritonserver, the parent process, leaves open."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

from lmi_backend.ipc.shared_memory import SHARED_MEMORY
from lmi_backend.repository.restricted_apis import exposures

_log = logging.getLogger(__name__)

_STUB: Final = "triton_python_backend_stub"
_SERVER: Final = 5
"""Place of its server's process among a stub's arguments."""
_ADVICE: Final = "deploy/README.md says what clients may do there, and how to close it"


def close_shared_memory() -> None:
    """Let only this user read the memory in which the stub's requests lie.

    Triton makes it readable for all. Its name is an argument of the stub's command line.
    """
    for region in shared_memory():
        region.chmod(0o600)


def shared_memory() -> list[Path]:
    """Return the files of the memory that this stub shares with its server."""
    names = (name for name in _argv(Path("/proc/self")) if name and "/" not in name)
    return [region for name in names if (region := SHARED_MEMORY / name).is_file()]


def server_process() -> int:
    """Return the process that started this stub, and may be its parent no longer."""
    program, *arguments = _argv(Path("/proc/self"))
    named = arguments[_SERVER - 1 :][:1] if Path(program).name == _STUB else []
    return int(named[0]) if named and named[0].isdecimal() else os.getppid()


def warn_of_exposures(model: str) -> None:
    """Log in one line what the server leaves open to clients that is not for them."""
    try:
        argv = _argv(Path(f"/proc/{server_process()}"))
    except OSError as error:
        _log.warning("%s: what tritonserver leaves open cannot be told: %s", model, error)
        return
    if not Path(argv[0]).name.startswith("tritonserver"):
        # A program that has loaded Triton into itself, as Dynamo: its ports are not Triton's.
        return
    # The server's environment is what the stub has inherited.
    if sentences := list(exposures(argv, os.environ)):
        _log.warning("%s: %s; %s", model, "; ".join(sentences), _ADVICE)


def _argv(process: Path) -> list[str]:
    return (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
