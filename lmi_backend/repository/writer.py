"""Write a Triton model folder for an LMI folder."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from lmi_backend import __version__
from lmi_backend.errors import ConfigurationError
from lmi_backend.options import FILE_NAME
from lmi_backend.repository.model_config import MODEL_DIR, model_config
from lmi_backend.repository.pbtxt import render

MODEL_PY = '''\
"""Served by lmi-backend; what it runs is in ../serving.properties."""

from lmi_backend.triton.model import TritonPythonModel

__all__ = ["TritonPythonModel"]
'''

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def write_model(source: Path, repository: Path, name: str) -> Path:
    """Write `<repository>/<name>` and return it.

    The folder gets the user's serving.properties unchanged, config.pbtxt and 1/model.py. Paths in
    the properties keep their meaning: config.pbtxt names the source folder, if it is another.

    Raises:
        ConfigurationError: the name cannot be a Triton model, or the folder cannot be written.
    """
    if not _NAME.fullmatch(name):
        message = f"model name {name!r}; accepted: letters, digits, and . _ - after the first"
        raise ConfigurationError(message)
    folder = repository / name
    is_in_place = source.resolve() == folder.resolve()
    parameters = {} if is_in_place else {MODEL_DIR: str(source.resolve())}
    config = model_config(name=name, parameters=parameters)
    try:
        (folder / "1").mkdir(parents=True, exist_ok=True)
        if (source / FILE_NAME).is_file() and not is_in_place:
            shutil.copyfile(source / FILE_NAME, folder / FILE_NAME)
        _replace(folder / "1" / "model.py", MODEL_PY)
        _replace(folder / "config.pbtxt", _HEADER + render(config))
    except OSError as error:
        message = f"{folder}: cannot be written: {error.strerror}"
        raise ConfigurationError(message) from error
    return folder


_HEADER = (
    f"# Written by lmi-backend {__version__} from serving.properties. Run convert again to renew.\n"
)


def write_backend(backends: Path) -> Path:
    """Write `<backends>/lmi`, which makes `backend: "lmi"` legal in config.pbtxt; return it."""
    folder = backends / "lmi"
    try:
        folder.mkdir(exist_ok=True)
        _replace(folder / "model.py", MODEL_PY)
    except OSError as error:
        message = f"{folder}: cannot be written: {error.strerror}"
        raise ConfigurationError(message) from error
    return folder


def _replace(path: Path, text: str) -> None:
    """Write in one step: a server that polls the repository never sees half a file."""
    draft = path.with_suffix(".new")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)
