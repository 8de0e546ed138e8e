"""Read a model of Triton's vLLM backend: its config.pbtxt, and the engine's arguments as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from lmi_backend.bounded_files import read_bounded
from lmi_backend.errors import ConfigurationError
from lmi_backend.migration.source import PresentServer
from lmi_backend.options import FILE_NAME
from lmi_backend.options.engine_spec import SPECS, default_engine
from lmi_backend.options.option import PREFIX
from lmi_backend.options.properties import as_property
from lmi_backend.options.table import common, lora
from lmi_backend.printable import printable
from lmi_backend.repository.files import CONFIG
from lmi_backend.units import MIB

_ARGUMENTS: Final = "model.json"
_ADAPTERS: Final = "multi_lora.json"


def models_in(folder: Path) -> list[Path]:
    """Return the versions of the backend's models in a folder: a model's, or a repository's."""
    if (folder / FILE_NAME).is_file():
        return []
    models = [folder] if (folder / CONFIG).is_file() else sorted(folder.glob("*/"))
    versions = ([each.parent for each in model.glob(f"[0-9]*/{_ARGUMENTS}")] for model in models)
    return [
        max(each, key=lambda version: (len(version.name), version.name))
        for each in versions
        if each
    ]


def read_version(version: Path, work: Path, source: PresentServer) -> Path:
    """Write a model of the backend as an LMI folder of its name; return that.

    Raises:
        ConfigurationError: a file is no JSON object.
    """
    name = version.parent.resolve().name
    arguments = _object(version / _ARGUMENTS)
    adapters = _object(version / _ADAPTERS) if (version / _ADAPTERS).is_file() else {}
    lines = [as_property(key, value) for key, value in _options(arguments, adapters)]
    folder = work / "source" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE_NAME).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    shown = printable(name, 100)
    source.changes.append(
        f"{shown}: the arguments in {_ARGUMENTS} are options in {FILE_NAME}; Triton's vLLM backend "
        "is replaced by that of lmi-backend"
    )
    source.decisions.append(
        f"{shown}: {CONFIG} is written again: compare its instance groups and its parameters"
    )
    return folder


def _options(
    arguments: Mapping[str, Any], adapters: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    # vLLM is LMI's default.
    yield common.ROLLING_BATCH.name, SPECS[default_engine()].rolling_batch
    if adapters:
        listed = [{"name": name, "path": str(path)} for name, path in adapters.items()]
        yield lora.LORA_MODULES.name, json.dumps(listed)
    for name, value in arguments.items():
        if not name.isidentifier():
            problem = f"{printable(name, 100)} is no argument of vLLM's engine"
            raise ConfigurationError(f"{_ARGUMENTS}: {problem}")
        if value is not None:
            key = common.MODEL_ID.name if name == "model" else f"{PREFIX}{name}"
            yield key, value if isinstance(value, str) else json.dumps(value)


def _object(path: Path) -> dict[str, Any]:
    try:
        read = json.loads(read_bounded(path, MIB))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: is not JSON: {error}") from error
    if not isinstance(read, dict):
        raise ConfigurationError(f"{path}: is no JSON object; accepted: arguments of vLLM's engine")
    return read
