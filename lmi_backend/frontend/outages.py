"""Requests whose model is down, until it is back: answers to resume with, and new ones."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import EngineDeadError, UnavailableError
from lmi_backend.frontend.connection import GONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmi_backend.engine_config import ModelInfo
    from lmi_backend.frontend.answer import Answer
    from lmi_backend.frontend.connection import ModelConnection


_log = logging.getLogger(__name__)

AWAY: Final = "it is down, and is expected back"


_COUNTED: Final = ("moved", "held", "given_up")
"""What becomes of the requests that wait for a model, as `Metrics` describes it."""


class Outages:
    """Requests that wait for their model to come back; their clients see a pause."""

    def __init__(self) -> None:
        self._outages: list[_Outage] = []
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """By the model's name."""
        self._is_stopping = False

    @property
    def awaited(self) -> list[str]:
        return sorted({each.model.name for each in self._outages if each.names})

    def counts(self, model: str) -> dict[str, int]:
        """Return a model's counts, and under `waiting` how many requests wait for it now."""
        waiting = sum(each.num_waiting for each in self._outages if each.model.name == model)
        return {"waiting": waiting} | {name: self._counts[model][name] for name in _COUNTED}

    def is_awaited(self, name: str) -> bool:
        return self._awaited(name) is not None

    def begin(
        self, answers: Sequence[Answer], lost: ModelInfo, names: tuple[str, ...] = ()
    ) -> None:
        """Keep the answers of a connection that is lost, for as long as its model allows.

        Args:
            names: of the model, for new requests meanwhile; none if it was unloaded.
        """
        seconds = lost.return_seconds
        if self._is_stopping or not seconds:
            _fail(answers, GONE)
            return
        if answers:
            _log.info(
                "answers that wait up to %.0f s for model %s: %d", seconds, lost.name, len(answers)
            )
        outage = _Outage(lost, answers, names)
        outage.timer = asyncio.get_running_loop().call_later(seconds, self._expire, outage)
        self._outages.append(outage)

    async def wait(self, name: str) -> None:
        """Let a new request wait for its model. Raises UnavailableError: too many, or too long."""
        if (outage := self._awaited(name)) is not None:
            outage.check()
            self._counts[outage.model.name]["held"] += 1
            await outage.wait()

    def resume(self, connection: ModelConnection) -> None:
        """Let the requests of a model that is back resume, and new ones begin."""
        for outage in self._take(connection.model.name):
            moved = sum(_goes_on(each, connection) for each in outage.open_answers)
            self._counts[connection.model.name]["moved"] += moved
            if moved or outage.num_new:
                _log.info(
                    "answers that resume now with model %s: %d; requests that begin: %d",
                    connection.model.name, moved, outage.num_new,
                )  # fmt: skip
            outage.end()

    def close(self) -> None:
        """Fail all, and keep none from now on: no model comes back."""
        self._is_stopping = True
        for outage in self._outages:
            outage.end(GONE)
        self._outages = []

    def _awaited(self, name: str) -> _Outage | None:
        named = [each for each in self._outages if name in each.names or (each.names and not name)]
        return named[0] if len({each.model.name for each in named}) == 1 else None

    def _take(self, name: str) -> list[_Outage]:
        taken = [each for each in self._outages if each.model.name == name]
        self._outages = [each for each in self._outages if each not in taken]
        return taken

    def _expire(self, outage: _Outage) -> None:
        self._outages.remove(outage)
        self._counts[outage.model.name]["given_up"] += outage.num_waiting
        waited = f"it was not back within {outage.model.return_seconds:.0f} s"
        outage.end(f"{GONE}, and {waited} (option.migration_timeout)")


class _Outage:
    """A model that is down, and who waits for it.

    Args:
        names: of the model in new requests; they do not wait if there are none.
    """

    timer: asyncio.TimerHandle
    """The timer of the wait."""

    def __init__(self, model: ModelInfo, answers: Sequence[Answer], names: tuple[str, ...]) -> None:
        self.model, self.answers, self.names = model, answers, names
        self.num_new = 0
        """New requests that wait."""
        self._is_over = asyncio.Event()
        self._error = ""

    @property
    def open_answers(self) -> list[Answer]:
        return [answer for answer in self.answers if not answer.is_over]

    @property
    def num_waiting(self) -> int:
        return len(self.open_answers) + self.num_new

    def check(self) -> None:
        """Raise UnavailableError if no more may wait."""
        if self.num_waiting >= self.model.capacity:
            text = f"{GONE}; {self.model.capacity} requests wait for it, which is as many as it"
            text += " takes at once (option.max_rolling_batch_size and job_queue_size)"
            raise UnavailableError(text)

    async def wait(self) -> None:
        self.num_new += 1
        try:
            await self._is_over.wait()
        finally:
            self.num_new -= 1
        if self._error:
            raise UnavailableError(self._error)

    def end(self, error: str = "") -> None:
        self.timer.cancel()
        self._error = error
        self._is_over.set()
        if error:
            _fail(self.answers, error)


def _goes_on(answer: Answer, connection: ModelConnection) -> bool:
    """Let an answer resume with a model that is back, or fail it; return whether it resumes."""
    problem = answer.progress.meet(connection.model) if answer.progress is not None else ""
    if problem:
        answer.fail(EngineDeadError(f"{GONE}, and it cannot resume with what is back: {problem}"))
    else:
        connection.resume(answer)
    return not problem


def _fail(answers: Sequence[Answer], reason: str) -> None:
    for answer in answers:
        answer.fail(EngineDeadError(reason))
