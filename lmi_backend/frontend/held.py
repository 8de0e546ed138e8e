"""Answers whose model has gone, until it is back."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from lmi_backend.errors import EngineDeadError
from lmi_backend.frontend.connection import GONE

if TYPE_CHECKING:
    from lmi_backend.frontend.connection import Answer, ModelConnection

_log = logging.getLogger(__name__)


class HeldAnswers:
    """Answers that wait for their model to come back; their clients see a pause."""

    def __init__(self) -> None:
        self._held: dict[str, set[Answer]] = {}
        self._is_stopping = False

    def hold(self, answers: list[Answer], lost: ModelConnection) -> None:
        """Keep the answers of a connection that is lost, for as long as its model allows."""
        name, seconds = lost.model.name, lost.model.return_seconds
        if not answers:
            return
        if self._is_stopping:
            seconds = 0.0
        _log.info("%d answers of model %s wait up to %.0f s for it", len(answers), name, seconds)
        self._held.setdefault(name, set()).update(answers)
        late = f"{GONE}, and it was not back within {seconds:.0f} s (option.migration_timeout)"
        asyncio.get_running_loop().call_later(seconds, self._fail, name, answers, late)

    def resume(self, found: ModelConnection) -> None:
        """Let the answers of a model that is back go on."""
        answers = [each for each in self._held.pop(found.model.name, ()) if not each.is_over]
        for answer in answers:
            found.resume(answer)
        if answers:
            _log.info("%d answers of model %s go on", len(answers), found.model.name)

    def give_up(self) -> None:
        """Fail all, and keep none from now on: no model comes back."""
        self._is_stopping = True
        for name, answers in list(self._held.items()):
            self._fail(name, list(answers), GONE)

    def _fail(self, name: str, answers: list[Answer], why: str) -> None:
        held = self._held.get(name, set())
        for answer in held.intersection(answers):
            held.discard(answer)
            answer.fail(EngineDeadError(why))
