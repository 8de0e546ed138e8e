"""Say in the log which parameters change nothing, however many a client sends."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from lmi_backend.clients.fields import NEUTRAL
from lmi_backend.printable import printable

_log = logging.getLogger(__name__)

_NAMED: Final = 8
"""Unknown names that are reported one by one."""
_SHOWN: Final = 40
"""Characters of an unknown name that are kept and logged: it is the client's text."""


class DroppedParameters:
    """Reports dropped parameters: a few lines in the life of a model, for any number of them.

    A parameter of LMI that nothing here serves is reported once. Of the unknown names the first few
    are reported. The others are counted, and the count is reported each time it has grown tenfold.
    """

    def __init__(self) -> None:
        self._logged: set[str] = set()
        self._named: set[str] = set()
        self._unnamed = 0
        self._next_count = 1

    def note(self, names: Sequence[str]) -> None:
        """Note what one request sent in vain."""
        before = self._unnamed
        for name in names:
            if name in NEUTRAL:
                self._say_known(name)
            else:
                self._say_unknown(name)
        if self._unnamed > before and self._unnamed >= self._next_count:
            self._next_count = 10 * self._unnamed
            _log.warning(
                "%d more unknown parameters of bodies change nothing; they are not named",
                self._unnamed,
            )

    def _say_known(self, name: str) -> None:
        if name not in self._logged:
            self._logged.add(name)
            _log.warning("parameter %s of a body changes nothing here (said once)", name)

    def _say_unknown(self, name: str) -> None:
        shown = printable(name, _SHOWN)
        if shown in self._named:
            return
        if len(self._named) == _NAMED:
            self._unnamed += 1
            return
        self._named.add(shown)
        _log.warning("parameter '%s' of a body is unknown and changes nothing (said once)", shown)
