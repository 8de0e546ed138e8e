"""The path of LMI's bodies, which users' own code gets too."""

from __future__ import annotations

from typing import Final

INVOCATIONS: Final = "/invocations"
