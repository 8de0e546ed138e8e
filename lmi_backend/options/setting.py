"""One thing the user wrote, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmi_backend.redaction import masked

if TYPE_CHECKING:
    from lmi_backend.options.option import Status

_SHOWN = 200


@dataclass(frozen=True)
class Setting:
    """A key and value as written, with the place for error messages.

    `origin` is "serving.properties:7" or "environment".
    """

    name: str
    value: str
    origin: str

    @property
    def shown(self) -> str:
        """The value for people: secrets masked, long texts cut."""
        text = masked(self.name, self.value)
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(self.value)} characters)"

    def __str__(self) -> str:
        return f"{self.origin}: {self.name}={self.shown}"


@dataclass(frozen=True)
class Classification:
    """A setting and what becomes of it."""

    setting: Setting
    status: Status

    def __str__(self) -> str:
        return f"{self.setting} is {self.status.word}: {self.status.detail}"
