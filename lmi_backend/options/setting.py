"""One thing the user wrote, and where."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmi_backend.options.option import Fate

_SECRET = re.compile(r"(token|secret|password|_pass|credentials|access_key)$", re.IGNORECASE)
_SHOWN = 200


def masked(name: str, value: str) -> str:
    """Return a value without its secrets: all of it, or the pairs in it, as option.env has them."""
    if _SECRET.search(name):
        return "***"
    return ",".join(_masked_pair(pair) for pair in value.split(","))


def _masked_pair(pair: str) -> str:
    name, is_pair, _ = pair.partition("=")
    return f"{name}=***" if is_pair and _SECRET.search(name) else pair


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
class Finding:
    """A setting and what becomes of it."""

    setting: Setting
    fate: Fate

    def __str__(self) -> str:
        return f"{self.setting} is {self.fate.word}: {self.fate.detail}"
