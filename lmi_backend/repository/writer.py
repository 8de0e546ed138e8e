"""Write a Triton model folder for an LMI folder."""

from __future__ import annotations

import json
import re
from pathlib import Path

from lmi_backend import __version__
from lmi_backend.errors import ConfigurationError
from lmi_backend.options import FILE_NAME, LmiOptions
from lmi_backend.plan.model_source import find_adapters
from lmi_backend.printable import as_utf_8, printable
from lmi_backend.repository.files import (
    CONFIG,
    RECORD,
    Record,
    digest,
    holds_secrets,
    properties_of,
    read,
    remove_written,
    replace,
    stamped,
    write_files,
)
from lmi_backend.repository.model_config import model_config, render
from lmi_backend.repository.variants import CLIENTS, SHARES, Alias

MODEL_PY = '''\
"""Served by lmi-backend; config.pbtxt and serving.properties say what it runs."""

from lmi_backend.triton.model import TritonPythonModel

__all__ = ["TritonPythonModel"]
'''

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SHARED = re.compile(rf'key: "{SHARES}"\s+value:? {{\s*string_value: "([^"]*)"')


def render_config(name: str) -> str:
    """Return the config.pbtxt of a model.

    Raises:
        ConfigurationError: the name cannot be a Triton model.
    """
    check_model_name(name)
    config = model_config(name=name, parameters={})
    return stamped(f" from {FILE_NAME}. Run convert again to renew", __version__, render(config))


def check_model_name(name: str) -> str:
    """Return a name that can be a Triton model.

    Raises:
        ConfigurationError: it cannot.
    """
    if not _NAME.fullmatch(name):
        text = printable(as_utf_8(name))
        message = f"model name '{text}'; accepted: letters, digits, and . _ - after the first"
        raise ConfigurationError(message)
    return name


def write_model(
    source: Path,
    repository: Path,
    name: str,
    options: LmiOptions,
    *,
    force: bool = False,
    from_environment: str = "",
) -> list[str]:
    """Write `<repository>/<name>`; return the paths of files that were others before.

    The folder gets the user's serving.properties unchanged but for the lines `from_environment`
    after them, config.pbtxt, 1/model.py, and the record. Paths in the properties
    keep their meaning: the record names the source folder, if it is another.

    Raises:
        ConfigurationError: the name cannot be a Triton model, the folder cannot be written, or it
            holds edits by hand and `force` is not set.
    """
    folder, properties = repository / name, source / FILE_NAME
    is_in_place = source.resolve() == folder.resolve()
    text = properties_of(source, options)
    is_edited = bool(text) and is_in_place
    if is_edited:
        # It is the user's, who may write into it what the environment says.
        from_environment = ""
    elif from_environment:
        text = f"{text.rstrip()}\n\n".lstrip() + from_environment
    record = Record(
        model_dir="" if is_in_place else str(source.resolve()),
        properties=digest(text) if text else "",
    )
    config = render_config(name)
    files = {"1/model.py": MODEL_PY, CONFIG: config, RECORD: record.as_text()}
    files |= _adapter_files(options)
    if text and not is_edited:
        files[FILE_NAME] = text
    elif not text:
        remove_written(folder)
    # Who may read the user's file may not read the secrets of his environment.
    like = None if holds_secrets(from_environment) else properties
    return write_files(folder, files, _last_record(folder), force=force, like=like)


def _last_record(folder: Path) -> Record | None:
    """Return the record of an earlier conversion, if it can be used."""
    try:
        return Record.read(folder)
    except ConfigurationError:
        return None


def write_alias_model(
    repository: Path, name: str, alias: Alias, options: LmiOptions, *, force: bool = False
) -> list[str]:
    """Write the thin model of other clients, which shares the workers of the model `name`.

    Returns and raises what `write_model` does; also where its folder is another model's.
    """
    alias_name = alias.model_name(name)
    variant = alias.variant.of_model(alias_name)
    folder = repository / alias_name
    if not force:
        _refuse_others(folder, name)
    parameters = {SHARES: name, CLIENTS: variant.clients}
    config = model_config(name=check_model_name(alias_name), parameters=parameters, variant=variant)
    text = stamped(f": {variant.help}", __version__, render(config))
    files = {"1/model.py": MODEL_PY, CONFIG: text} | _adapter_files(options)
    return write_files(folder, files, None, force=force)


def _refuse_others(folder: Path, shares: str) -> None:
    """Refuse a folder that holds a model, or an alias model of another one."""
    config = read(folder / CONFIG) if (folder / CONFIG).is_file() else ""
    if not config:
        return
    match = _SHARED.search(config)
    if match is None or match[1] != shares:
        what = f"an alias model of {match[1]}" if match else "a model"
        message = f"{folder}: is {what}; accepted: another name, or --force to write over it"
        raise ConfigurationError(message)


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
        replace(folder / "model.py", MODEL_PY)
    except OSError as error:
        raise ConfigurationError(f"{folder}: cannot be written: {error.strerror}") from error
    return folder
