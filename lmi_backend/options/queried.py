"""What a library of an unknown release said of its arguments, kept by the digest of its files."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import lmi_backend
from lmi_backend.errors import ConfigurationError
from lmi_backend.options.installation import locate, record_of
from lmi_backend.private_folders import private_folder, secure_cache

if TYPE_CHECKING:
    from lmi_backend.options.engine_spec import ArgumentSource

_FORMAT: Final = b"1"
"""Changes with what is kept."""
_SECONDS: Final = 600.0
"""Importing vLLM from a cold disk takes minutes."""
_SHOWN: Final = 300


def answer_of(source: ArgumentSource, folder: Path) -> dict[str, Any] | None:
    """Return what the library in a folder has said; None if it was not queried."""
    try:
        answer = json.loads(_place(source, folder).read_bytes())
    except (OSError, ValueError):
        return None
    return answer if isinstance(answer, dict) and "arguments" in answer else None


def place_of_answer(source: ArgumentSource, python: str) -> Path | None:
    """Return where to keep what a library says; None if it cannot be queried, or was.

    Raises:
        ConfigurationError: somebody else has put something there.
        OSError: nothing can be written there.
    """
    folder = next(iter(locate(source.package, python)), None)
    if not source.query or folder is None:
        return None
    place = _place(source, folder)
    if place.exists():
        return None
    secure_cache(place.parent, "the folder of what engines say of their arguments")
    place.parent.parent.mkdir(parents=True, exist_ok=True)
    private_folder(place.parent)
    return place


def query_library(query: str, python: str, place: Path) -> None:
    """Have an interpreter import a library and write what that takes.

    Args:
        query: the module that does it.
        python: the interpreter.
        place: the file.

    Raises:
        ConfigurationError: it could not.
    """
    with tempfile.TemporaryDirectory() as folder:
        # What else lies next to this package is not that interpreter's.
        (Path(folder) / "lmi_backend").symlink_to(Path(lmi_backend.__file__).resolve().parent)
        paths = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
        try:
            subprocess.run(  # noqa: S603
                (python, "-m", query, str(place)),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_SECONDS,
                check=True,
                cwd=folder,
                env=os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
            )
        except subprocess.CalledProcessError as error:
            last = error.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise ConfigurationError(last[:_SHOWN] or f"exit status {error.returncode}") from error
        except (OSError, subprocess.SubprocessError) as error:
            raise ConfigurationError(str(error)[:_SHOWN]) from error


def _place(source: ArgumentSource, folder: Path) -> Path:
    try:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError as error:
        # A container's user of any number has no home.
        raise OSError(str(error)) from error
    digest = hashlib.sha256(_FORMAT + _files(source, folder)).hexdigest()
    return Path(cache) / "lmi-backend" / "arguments" / f"{digest}.json"


def _files(source: ArgumentSource, folder: Path) -> bytes:
    """Return what differs when a file of a library does."""
    if record := record_of(source, folder):
        return record
    # As of an editable installation.
    files = ((path, path.stat()) for path in sorted(folder.rglob("*.py")))
    return "".join(
        f"{path} {about.st_size} {about.st_mtime_ns}\n" for path, about in files
    ).encode()
