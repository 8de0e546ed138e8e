"""Write a Triton model folder for an LMI folder."""

from __future__ import annotations

import difflib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from lmi_backend import __version__
from lmi_backend.errors import ConfigurationError
from lmi_backend.options import FILE_NAME
from lmi_backend.plan.model_source import find_adapters
from lmi_backend.repository.entries import CLIENTS, ENTRIES, SHARES
from lmi_backend.repository.model_config import MODEL_DIR, WARMUP_FILE, model_config
from lmi_backend.repository.pbtxt import render
from lmi_backend.repository.record import digest, options_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lmi_backend.options import LmiOptions

MODEL_PY = '''\
"""Served by lmi-backend; config.pbtxt and serving.properties say what it runs."""

from lmi_backend.triton.model import TritonPythonModel

__all__ = ["TritonPythonModel"]
'''

_CONFIG = "config.pbtxt"
# Triton's form of a string in a file: its length in four bytes, then its bytes.
_WARMUP_PROMPT = "\x07\0\0\0Warm up"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_STAMP = re.compile(r"# digests: config (\w+), properties (\w*)\n")


def render_config(
    source: Path, options: LmiOptions, name: str, *, is_in_place: bool = False, warmup: bool = False
) -> str:
    """Return the config.pbtxt of an LMI folder.

    Raises:
        ConfigurationError: the name cannot be a Triton model.
    """
    if not _NAME.fullmatch(name):
        message = f"model name {name!r}; accepted: letters, digits, and . _ - after the first"
        raise ConfigurationError(message)
    place = {} if is_in_place else {MODEL_DIR: str(source.resolve())}
    config = model_config(name=name, parameters=place | options_record(options), warmup=warmup)
    body = render(config)
    properties = source / FILE_NAME
    written = _read(properties) if properties.is_file() else ""
    return (
        f"# Written by lmi-backend {__version__} from {FILE_NAME}. Run convert again to renew.\n"
        f"# digests: config {digest(body)}, properties {digest(written) if written else ''}\n"
        f"{body}"
    )


def write_model(
    source: Path,
    repository: Path,
    name: str,
    options: LmiOptions,
    *,
    force: bool = False,
    warmup: bool = False,
) -> list[str]:
    """Write `<repository>/<name>`; return a line for each change to what was there.

    The folder gets the user's serving.properties unchanged, config.pbtxt and 1/model.py. Paths in
    the properties keep their meaning: config.pbtxt names the source folder, if it is another.

    Raises:
        ConfigurationError: the name cannot be a Triton model, the folder cannot be written, or it
            holds edits by hand and `force` is not set.
    """
    folder = repository / name
    is_in_place = source.resolve() == folder.resolve()
    config = render_config(source, options, name, is_in_place=is_in_place, warmup=warmup)
    files = {"1/model.py": MODEL_PY, _CONFIG: config} | _adapter_files(options)
    if warmup:
        files[f"warmup/{WARMUP_FILE}"] = _WARMUP_PROMPT
    if not is_in_place and (source / FILE_NAME).is_file():
        files[FILE_NAME] = _read(source / FILE_NAME)
    return _write_files(folder, files, force=force)


def _write_files(folder: Path, files: Mapping[str, str], *, force: bool) -> list[str]:
    try:
        before = {path: _read(folder / path) for path in files if (folder / path).is_file()}
        if not force:
            _refuse_edits(folder, before)
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            if before.get(path) != text:
                _replace(folder / path, text)
    except OSError as error:
        message = f"{folder}: cannot be written: {error.strerror}"
        raise ConfigurationError(message) from error
    return [line for path in before for line in _difference(path, before[path], files[path])]


def write_door(
    repository: Path, name: str, clients: str, options: LmiOptions, *, force: bool = False
) -> list[str]:
    """Write the thin model of other clients, which shares the workers of the model `name`.

    Returns and raises what `write_model` does.
    """
    entry = ENTRIES[clients]
    parameters = {SHARES: name, CLIENTS: clients}
    config = model_config(name=entry.model_name(name), parameters=parameters, entry=entry)
    body = render(config)
    text = (
        f"# Written by lmi-backend {__version__}: {entry.help}.\n"
        f"# digests: config {digest(body)}, properties \n"
        f"{body}"
    )
    files = {"1/model.py": MODEL_PY, _CONFIG: text} | _adapter_files(options)
    return _write_files(repository / entry.model_name(name), files, force=force)


def _adapter_files(options: LmiOptions) -> dict[str, str]:
    """Return the files in which Triton's OpenAI front end looks for LoRA adapters."""
    adapters = find_adapters(options)
    if not adapters:
        return {}
    return {
        "1/multi_lora.json": json.dumps(adapters, indent=2) + "\n",
        "1/model.json": json.dumps({"enable_lora": "true"}) + "\n",
    }


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


def _refuse_edits(folder: Path, before: Mapping[str, str]) -> None:
    """Refuse to write over what somebody has changed since it was written, or wrote himself."""
    stamp = _STAMP.search(before.get(_CONFIG, ""))
    for path, text in before.items():
        if path == _CONFIG:
            is_ours = stamp is not None and stamp[1] == digest(text[stamp.end() :])
        elif path == FILE_NAME:
            is_ours = stamp is not None and stamp[2] == digest(text)
        elif path.startswith("warmup/"):
            is_ours = text == _WARMUP_PROMPT
        elif path.endswith(".json"):
            # Adapters come and go; nothing here reads these files.
            is_ours = True
        else:
            is_ours = "lmi_backend.triton.model import TritonPythonModel" in text
        if not is_ours:
            message = (
                f"{folder / path}: was edited by hand, or is not from lmi-backend; "
                "--force writes over it"
            )
            raise ConfigurationError(message)


def _difference(path: str, before: str, after: str) -> Iterator[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    for line in list(lines)[2:]:
        if line[0] in "+-" and not line[1:].startswith("# "):
            yield f"{path}: {line}"


def _read(path: Path) -> str:
    # A user's file may be UTF-8 or Latin-1; this keeps its bytes either way.
    return path.read_bytes().decode("utf-8", "surrogateescape")


def _replace(path: Path, text: str) -> None:
    """Write in one step: a server that polls the repository never sees half a file."""
    draft = path.with_suffix(".new")
    draft.write_bytes(text.encode("utf-8", "surrogateescape"))
    os.replace(draft, path)
