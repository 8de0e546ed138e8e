"""What a user may point at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmi_backend.errors import ConfigurationError
from lmi_backend.options import FILE_NAME

if TYPE_CHECKING:
    from pathlib import Path


def model_folder(path: Path) -> Path:
    """Return the LMI folder a path names: the folder, or its serving.properties.

    Raises:
        ConfigurationError: there is nothing to serve at the path.
    """
    folder = path.parent if path.name == FILE_NAME else path
    if not folder.is_dir():
        message = f"{path}: is not a folder; accepted: a folder with a {FILE_NAME}"
        raise ConfigurationError(message)
    if not any((folder / name).is_file() for name in (FILE_NAME, "config.json")):
        message = f"{folder}: has neither {FILE_NAME} nor config.json"
        raise ConfigurationError(message)
    return folder
