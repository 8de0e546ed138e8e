"""One thing the user wrote, and where."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """A key and value as written, with the place for error messages.

    `origin` is "serving.properties:7" or "environment".
    """

    name: str
    value: str
    origin: str
