"""Answers whose model has gone, until it is back."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from lmi_backend.errors import EngineDeadError
from lmi_backend.frontend.connection import GONE

if TYPE_CHECKING:
    from lmi_backend.frontend.connection import Answer, ModelConnection

_log = logging.getLogger(__name__)


class HeldAnswers:
    """Answers that wait for their model to come back; their clients see a pause."""

    def __init__(self) -> None:
        self._held: dict[str, list[_Wait]] = {}
        self._is_stopping = False

    def hold(self, answers: list[Answer], lost: ModelConnection) -> None:
        """Keep the answers of a connection that is lost, for as long as its model allows."""
        name, seconds = lost.model.name, lost.model.return_seconds
        if not answers:
            return
        if self._is_stopping:
            _fail(answers, GONE)
            return
        _log.info("%d answers of model %s wait up to %.0f s for it", len(answers), name, seconds)
        late = f"{GONE}, and it was not back within {seconds:.0f} s (option.migration_timeout)"
        timer = asyncio.get_running_loop().call_later(seconds, _fail, answers, late)
        self._held.setdefault(name, []).append(_Wait(answers, timer))

    def resume(self, found: ModelConnection) -> None:
        """Let the answers of a model that is back go on."""
        answers = [each for each in self._take(found.model.name) if not each.is_over]
        for answer in answers:
            found.resume(answer)
        if answers:
            _log.info("%d answers of model %s go on", len(answers), found.model.name)

    def give_up(self) -> None:
        """Fail all, and keep none from now on: no model comes back."""
        self._is_stopping = True
        for name in list(self._held):
            _fail(self._take(name), GONE)

    def _take(self, name: str) -> list[Answer]:
        waits = self._held.pop(name, [])
        for wait in waits:
            wait.timer.cancel()
        return [answer for wait in waits for answer in wait.answers]


class _Wait(NamedTuple):
    answers: list[Answer]
    timer: asyncio.TimerHandle
    """Ends the wait."""


def _fail(answers: list[Answer], why: str) -> None:
    for answer in answers:
        answer.fail(EngineDeadError(why))
