"""Requests whose model has gone, until it is back: answers to go on with, and new ones."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import EngineDeadError, UnavailableError
from lmi_backend.frontend.connection import GONE
from lmi_backend.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmi_backend.engine_config import ModelInfo
    from lmi_backend.frontend.answer import Answer
    from lmi_backend.frontend.connection import ModelConnection
    from lmi_backend.serving.progress import Progress

_log = logging.getLogger(__name__)

AWAY: Final = "it has gone, and is expected back"


@dataclass
class _Counts:
    """What became of the requests that waited for a model."""

    moved: int = 0
    """Times one went on."""
    held: int = 0
    """Those that waited before they began."""
    given_up: int = 0
    """Those for which the model was not back in time."""


class HeldRequests:
    """Requests that wait for their model to come back; their clients see a pause."""

    def __init__(self) -> None:
        self._absences: list[_Absence] = []
        self._counts: defaultdict[str, _Counts] = defaultdict(_Counts)
        """By the model's name."""
        self._is_stopping = False

    @property
    def awaited(self) -> list[str]:
        """Names of the models for which new requests wait."""
        return sorted({each.model.name for each in self._absences if each.names})

    def told(self, model: str) -> dict[str, int]:
        """Return a model's counts, and under `waiting` how many requests wait for it now."""
        waiting = sum(each.num_waiting for each in self._absences if each.model.name == model)
        return {"waiting": waiting, **asdict(self._counts[model])}

    def is_awaited(self, name: str) -> bool:
        """Tell whether a new request may wait for the model of a name."""
        return self._awaited(name) is not None

    def hold(self, answers: Sequence[Answer], lost: ModelInfo, names: tuple[str, ...] = ()) -> None:
        """Keep the answers of a connection that is lost, for as long as its model allows.

        Args:
            answers: those that may go on.
            lost: the model.
            names: by which new requests may ask for it meanwhile; none if it was unloaded.
        """
        seconds = lost.return_seconds
        if self._is_stopping or not seconds:
            _fail(answers, GONE)
            return
        if answers:
            _log.info(
                "%d answers of model %s wait up to %.0f s for it", len(answers), lost.name, seconds
            )
        absence = _Absence(lost, answers, names)
        absence.timer = asyncio.get_running_loop().call_later(seconds, self._be_late, absence)
        self._absences.append(absence)

    async def wait(self, name: str) -> None:
        """Let a new request wait until the model of a name is back.

        Raises:
            UnavailableError: too many wait, or it was not back in time.
        """
        if (absence := self._awaited(name)) is not None:
            absence.check()
            self._counts[absence.model.name].held += 1
            await absence.wait()

    def resume(self, found: ModelConnection) -> None:
        """Let the requests of a model that is back go on, and new ones begin."""
        for absence in self._take(found.model.name):
            moved = sum(_goes_on(each, absence.model, found) for each in absence.open_answers)
            self._counts[found.model.name].moved += moved
            if moved or absence.num_new:
                _log.info(
                    "%d answers of model %s go on, %d requests begin",
                    moved, found.model.name, absence.num_new,
                )  # fmt: skip
            absence.end()

    def give_up(self) -> None:
        """Fail all, and keep none from now on: no model comes back."""
        self._is_stopping = True
        for absence in self._absences:
            absence.end(GONE)
        self._absences = []

    def _awaited(self, name: str) -> _Absence | None:
        """Return what a request waits for by a name; by none for the only one there is."""
        named = [each for each in self._absences if name in each.names or (each.names and not name)]
        return named[0] if len({each.model.name for each in named}) == 1 else None

    def _take(self, name: str) -> list[_Absence]:
        taken = [each for each in self._absences if each.model.name == name]
        self._absences = [each for each in self._absences if each not in taken]
        return taken

    def _be_late(self, absence: _Absence) -> None:
        self._absences.remove(absence)
        self._counts[absence.model.name].given_up += absence.num_waiting
        waited = f"it was not back within {absence.model.return_seconds:.0f} s"
        absence.end(f"{GONE}, and {waited} (option.migration_timeout)")


class _Absence:
    """A model that has gone, and who waits for it.

    Args:
        names: by which new requests ask for it; they do not wait where there are none.
    """

    timer: asyncio.TimerHandle
    """Ends the wait."""

    def __init__(self, model: ModelInfo, answers: Sequence[Answer], names: tuple[str, ...]) -> None:
        self.model, self.answers, self.names = model, answers, names
        self.num_new = 0
        """New requests that wait."""
        self._is_over = asyncio.Event()
        self._error = ""

    @property
    def open_answers(self) -> list[Answer]:
        """Answers whose clients are there."""
        return [answer for answer in self.answers if not answer.is_over]

    @property
    def num_waiting(self) -> int:
        """Requests that wait."""
        return len(self.open_answers) + self.num_new

    def check(self) -> None:
        """Raise UnavailableError if no more may wait."""
        if self.num_waiting >= self.model.capacity:
            text = f"{GONE}; {self.model.capacity} requests wait for it, which is as many as it"
            text += " takes at once (option.max_rolling_batch_size and job_queue_size)"
            raise UnavailableError(text)

    async def wait(self) -> None:
        """Let a new request wait; raises like `HeldRequests.wait`."""
        self.num_new += 1
        try:
            await self._is_over.wait()
        finally:
            self.num_new -= 1
        if self._error:
            raise UnavailableError(self._error)

    def end(self, error: str = "") -> None:
        """End the wait, of all with an error if there is one."""
        self.timer.cancel()
        self._error = error
        self._is_over.set()
        if error:
            _fail(self.answers, error)


def _goes_on(answer: Answer, lost: ModelInfo, found: ModelConnection) -> bool:
    """Let an answer go on with a model that is back, or fail it; return whether it goes on."""
    problem = _difference(answer.progress, lost, found.model)
    if problem:
        answer.fail(EngineDeadError(f"{GONE}, and it cannot go on with what is back: {problem}"))
    else:
        found.resume(answer)
    return not problem


def _difference(progress: Progress | None, lost: ModelInfo, found: ModelInfo) -> str:
    """Return why the ids of an answer's tokens say something else now; empty if they do not."""
    if progress is None or not progress.has_begun:
        # All of its answer will be the other's.
        return ""
    if lost.digest != found.digest:
        return "its files, its tokenizer or an option that chooses them has changed"
    names = lost.adapters.keys() if progress.model is None else {progress.model}
    changed = [each for each in names if lost.adapters.get(each) != found.adapters.get(each)]
    return f"adapter {printable(changed[0])} has changed or is not there" if changed else ""


def _fail(answers: Sequence[Answer], why: str) -> None:
    for answer in answers:
        answer.fail(EngineDeadError(why))
