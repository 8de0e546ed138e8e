"""Where a model's endpoint is: a Unix socket that only this user reaches, and who waits for it."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from lmi_backend.files import private_folder
from lmi_backend.ipc.environment import RUN_DIR_VARIABLE


def endpoint_address(model: str) -> Path:
    """Return the socket of a model of this process's server, in a folder of mode 0700.

    Every stub is a child of tritonserver, so its process id tells two servers apart.

    Raises:
        ConfigurationError: the folder belongs to somebody else.
    """
    base = Path(os.environ.get(RUN_DIR_VARIABLE) or tempfile.gettempdir())
    folder = private_folder(endpoint_folder(base))
    return folder / f"{os.getppid()}-{endpoint_name(model)}.sock"


def endpoint_folder(base: Path) -> Path:
    return base / f"lmi-endpoints-{os.getuid()}"


def endpoint_name(model: str) -> str:
    """Return a model's name in a socket's path, which holds 107 bytes; the name may be longer."""
    return hashlib.sha256(model.encode()).hexdigest()[:16]


def waiting_mark(model: str) -> Path:
    """Return the file that says that this process, an alias model, waits for an endpoint."""
    return endpoint_address(model).with_suffix(f".{os.getpid()}")


def waiting_marks(model: str) -> list[Path]:
    endpoint = endpoint_address(model)
    marks = endpoint.parent.glob(f"{endpoint.stem}.*")
    return [mark for mark in marks if mark != endpoint and Path("/proc", mark.suffix[1:]).exists()]
