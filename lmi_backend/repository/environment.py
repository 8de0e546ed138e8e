"""What the environment said of a model, as properties: a fleet's server then needs no variables."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import ConfigurationError
from lmi_backend.options import FILE_NAME
from lmi_backend.options.model_store import LOAD_MODELS
from lmi_backend.options.properties import Property, as_property, parse_properties
from lmi_backend.options.sources import ORIGIN
from lmi_backend.options.spec import FEATURES, PREFIX
from lmi_backend.options.table import common as opt
from lmi_backend.redaction import secrets_of
from lmi_backend.repository.files import read
from lmi_backend.repository.record import Record, salted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lmi_backend.options import LmiOptions
    from lmi_backend.options.spec import WrittenSetting

_MARKS: Final = (
    "# From the environment in which lmi-backend wrote this folder",
    "# From the command line with which lmi-backend wrote this folder",
)


def environment_properties(options: LmiOptions) -> str:
    """Return the settings that came from variables as lines of properties; empty if none did."""
    return _marked(_MARKS[0], _settings(options))


def command_line_properties(given: Iterable[Property]) -> str:
    """Return flags as lines of properties; empty if there are none."""
    return _marked(_MARKS[1], ((each.key, each.value) for each in given))


def _marked(mark: str, settings: Iterable[tuple[str, str]]) -> str:
    lines = [as_property(name, value) for name, value in settings]
    return "".join(f"{line}\n" for line in (mark, *lines)) if lines else ""


def left_to_the_server(options: LmiOptions) -> list[str]:
    """Return the variables that say something of the machine, and so are not written."""
    written = {setting.name for _, setting in _from_variables(options)}
    return [
        found.setting.name
        for found in options.classifications
        if found.setting.origin == ORIGIN
        and found.status.word == "mapped"
        and found.setting.name not in {*written, FEATURES, LOAD_MODELS}
    ]


def holds_secrets(properties: str) -> bool:
    """Tell whether lines of properties hold what not everybody may read."""
    return any(
        secret
        for each in parse_properties(properties)
        for secret in secrets_of(each.key, each.value)
    )


def has_own_properties(folder: Path) -> bool:
    """Tell whether somebody wrote a folder's serving.properties, or edited what we had written."""
    text = _text(folder)
    try:
        record = Record.read(folder)
    except ConfigurationError:
        return bool(text)
    is_ours = record is not None and record.properties == salted(record.salt, text)
    return bool(text) and not (is_ours and text.startswith(_MARKS))


def properties_of(folder: Path, options: LmiOptions) -> str:
    """Return the text of a folder's serving.properties, if the options were read from it."""
    text = _text(folder)
    origins = (found.setting.origin for found in options.classifications)
    is_read = any(origin.startswith(FILE_NAME) for origin in origins)
    return text if is_read or not text.startswith(_MARKS) else ""


def remove_written(folder: Path) -> None:
    """Remove what an earlier conversion knew of the environment: it is true no more."""
    if _text(folder).startswith(_MARKS):
        (folder / FILE_NAME).unlink()


def _text(folder: Path) -> str:
    file = folder / FILE_NAME
    return read(file) if os.path.isfile(file) else ""


def _settings(options: LmiOptions) -> Iterator[tuple[str, str]]:
    for name, setting in _from_variables(options):
        yield name, setting.value
    is_of_the_image = any(FEATURES in reason for reason in options.choice.reasons)
    if is_of_the_image and options.choice.spec.entry_points:
        # Its handler names the engine and, unlike rolling_batch, says nothing of mode and dialect.
        yield opt.ENTRY_POINT.name, options.choice.spec.entry_points[0]


def _from_variables(options: LmiOptions) -> Iterator[tuple[str, WrittenSetting]]:
    passed = {PREFIX + name: setting for name, setting in options.passthrough.items()}
    for name, setting in {**options.settings, **passed}.items():
        # The interpreter is the machine's.
        if setting.origin == ORIGIN and name != opt.PYTHON_EXECUTABLE.name:
            yield name, setting
