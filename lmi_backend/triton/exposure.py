"""See to what a tritonserver that others start leaves open to who is no client."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

from lmi_backend.ipc.shared_memory import SHARED_MEMORY
from lmi_backend.repository.restricted_apis import exposures

_log = logging.getLogger(__name__)

_ADVICE: Final = "deploy/README.md of lmi-backend has the arguments; `lmi-backend serve` sets them"


def close_shared_memory() -> None:
    """Let only this user read the memory in which the stub's requests lie.

    Triton makes it readable for all. Its name is a word of the stub's command line.
    """
    words = Path("/proc/self/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    for region in (SHARED_MEMORY / word for word in words if word and "/" not in word):
        if region.is_file():
            region.chmod(0o600)


def warn_of_exposures(model: str) -> None:
    """Log what the server, this process's parent, was started without."""
    server = Path(f"/proc/{os.getppid()}")
    try:
        words = (server / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError as error:
        _log.warning("%s: what tritonserver leaves open cannot be told: %s", model, error)
        return
    # The server's environment is what the stub has inherited.
    for sentence in exposures(words, os.environ):
        _log.warning("%s: %s; %s", model, sentence, _ADVICE)
