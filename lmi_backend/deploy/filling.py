"""The files of this folder, with the values of a model."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER: Final = Path(__file__).parent
STORE: Final = "/opt/ml/model"
"""Where the base mounts the model."""


def fill(name: str, values: Mapping[str, object]) -> str:
    """Return the text of a file with its values."""
    return Template((FOLDER / name).read_text(encoding="utf-8")).substitute(values)


def texts_below(name: str) -> dict[str, str]:
    """Return the text of each file of a folder, by its name."""
    return {each.name: each.read_text(encoding="utf-8") for each in (FOLDER / name).iterdir()}
