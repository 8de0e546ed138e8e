"""The last lines of a stub's log, for those who look at the model."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING, Final

from lmi_backend.printable import cut

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.endpoint.state import LogLine

_LINES: Final = 200
_LONGEST: Final = 4000
"""Characters of a line; a traceback is one."""


class RecentLog:
    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque(maxlen=_LINES)
        self._numbers = itertools.count(1)

    def add(self, created: float, level: str, text: str) -> None:
        self._lines.append((next(self._numbers), created, level, cut(text, _LONGEST)))

    def after(self, number: int) -> list[LogLine]:
        return [line for line in self._lines.copy() if line[0] > number]

    def rewrite(self, change: Callable[[str], str]) -> None:
        """Change the texts of all lines, when more secrets are known."""
        lines = [(*line[:3], change(line[3])) for line in self._lines.copy()]
        self._lines = deque(lines, maxlen=_LINES)


RECENT: Final = RecentLog()
"""Of this process, which serves one model."""
