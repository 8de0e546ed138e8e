"""One thing the user wrote, and where."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from lmi_backend.errors import OptionError
from lmi_backend.printable import printable
from lmi_backend.redaction import masked

if TYPE_CHECKING:
    from lmi_backend.options.option import Status

_SHOWN = 200
# Of a longer value no more is looked through for secrets: what is shown is its beginning.
_MASKED = 16_384


@dataclass(frozen=True)
class WrittenSetting:
    """A key and value as written, with the place for error messages.

    `origin` is "serving.properties:7" or "environment".
    """

    name: str
    value: str
    origin: str

    @cached_property
    def shown(self) -> str:
        """The value for people: secrets masked, long texts cut, on one line."""
        text = masked(self.name, self.value[:_MASKED])
        shown = printable(text[:_SHOWN], _SHOWN)
        return shown if len(text) <= _SHOWN else f"{shown}… ({len(self.value)} characters)"

    @property
    def written(self) -> str:
        """Name and value for people."""
        return f"{printable(self.name)}={self.shown}"

    def error(self, problem: str, accepted: str = "") -> OptionError:
        """Build the error for it."""
        return OptionError(
            problem, option=self.name, value=self.shown, origin=self.origin, accepted=accepted
        )

    def __str__(self) -> str:
        return f"{self.origin}: {self.written}"


@dataclass(frozen=True)
class Classification:
    """A setting and what becomes of it."""

    setting: WrittenSetting
    status: Status

    def __str__(self) -> str:
        return f"{self.setting} is {self.status.word}: {self.status.detail}"
