"""Count what a service sends, and log how requests end. `metrics.py` makes metrics of the counts.

Guarded by the lock of the service.
"""

from __future__ import annotations

import json
import logging
import re
import time
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import EngineError, LmiError
from lmi_backend.ipc.engine import Histogram
from lmi_backend.printable import cut, printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lmi_backend.generation import Chunk
    from lmi_backend.pool.rank_group import WorkerStats
    from lmi_backend.serving.request_state import RequestState

_log = logging.getLogger(__name__)

_SHOWN: Final = 200
"""Characters of a value in the log."""
_PLAIN: Final = re.compile(rf"[\w./:@+-]{{1,{_SHOWN}}}", re.ASCII)
_FIRST_EDGES: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_TOKEN_EDGES: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)
_REQUEST_EDGES: Final = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300)
_LENGTH_EDGES: Final = (
    1, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000
)  # fmt: skip
_COUNT_EDGES: Final = (1, 2, 5, 10, 20, 50, 100)


@dataclass
class StatsSnapshot:
    """What a service has counted since its start."""

    open: int = 0
    waiting: int = 0
    """Answers of the requests that were sent to no worker yet."""
    ended: dict[str, int] = field(default_factory=dict)
    """Requests by their outcome: a finish reason, or an error's code in lower case."""
    responses: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    first_seconds: Histogram = field(default_factory=partial(Histogram.of, _FIRST_EDGES))
    """From a request to its first response, or to its first token where that is known."""
    token_seconds: Histogram = field(default_factory=partial(Histogram.of, _TOKEN_EDGES))
    """From one token of a stream to the next; tokens that share a response share its time."""
    request_seconds: Histogram = field(default_factory=partial(Histogram.of, _REQUEST_EDGES))
    """From a request to its last response."""
    prompt_lengths: Histogram = field(default_factory=partial(Histogram.of, _LENGTH_EDGES))
    """Prompt tokens of each request that was answered."""
    answer_lengths: Histogram = field(default_factory=partial(Histogram.of, _LENGTH_EDGES))
    """Tokens generated for each of them."""
    answer_counts: Histogram = field(default_factory=partial(Histogram.of, _COUNT_EDGES))
    """Answers that each of them wants."""
    workers: list[WorkerStats] = field(default_factory=list)
    moved: int = 0
    """Times a request resumed after its worker had died."""
    repeated_tokens: int = 0
    """Tokens that their answers had then."""
    held: int = 0
    """Requests that waited because no worker was ready."""
    given_up: int = 0
    """Of both, those for which none was ready in time."""
    prefix_hits: int = 0
    """Requests that were sent to the worker with most of their prompt in its cache."""
    prefix_lost: int = 0
    """Of these, requests where the cache had much less than expected."""
    prefix_moves: int = 0
    """Requests that were sent elsewhere, because that worker had more to do."""


class RequestStats:
    """Counts one model's requests, and logs the outcomes of all, or where the engine failed."""

    def __init__(self, model: str = "", *, says_all: bool = False) -> None:
        self._model, self._says_all = model, says_all
        self._counts = StatsSnapshot()

    def sent(self, state: RequestState, chunks: Sequence[Chunk], now: float | None = None) -> None:
        """Note a response, at a time of the monotonic clock."""
        now = now or time.monotonic()
        self._counts.responses += 1
        num_tokens = 0
        for chunk in chunks:
            num_tokens += chunk.num_tokens
            if chunk.is_last and chunk.index % state.n == 0:
                self._counts.prompt_tokens += chunk.num_prompt_tokens
                state.num_prompt_tokens += chunk.num_prompt_tokens
        self._counts.generation_tokens += num_tokens
        if chunks and not state.num_sent:
            decoding = chunks[0].decode_seconds if state.width == 1 else None
            state.first_at = now - (decoding or 0.0)
            self._counts.first_seconds.observe(state.first_at - state.began)
            if decoding is not None and num_tokens > 1:
                self._counts.token_seconds.observe(decoding / (num_tokens - 1), num_tokens - 1)
        elif num_tokens:
            self._counts.token_seconds.observe((now - state.sent_at) / num_tokens, num_tokens)
        state.sent_at = now
        state.num_sent += bool(chunks)
        state.num_tokens += num_tokens

    def passed(self, gaps: Mapping[tuple[float, int], int], now: float) -> None:
        """Note the events of a step, whose streams' latest ones came together as a rule.

        Args:
            gaps: how many there are whose stream had its latest one at some time, by that time and
                the tokens of the event.
            now: time of the monotonic clock.
        """
        for (sent_at, num_tokens), count in gaps.items():
            self._counts.responses += count
            self._counts.generation_tokens += num_tokens * count
            self._counts.token_seconds.observe((now - sent_at) / num_tokens, num_tokens * count)

    def token_gaps(self) -> tuple[float, int]:
        """Return the seconds between tokens so far, and how many tokens they were between."""
        return self._counts.token_seconds.total, self._counts.token_seconds.count

    def refused(self, error: LmiError) -> None:
        self._count(error.outcome)

    def _count(self, outcome: str) -> None:
        self._counts.ended[outcome] = self._counts.ended.get(outcome, 0) + 1

    def ended(self, state: RequestState, outcome: str) -> None:
        self._count(outcome)
        self._counts.request_seconds.observe(state.sent_at - state.began)
        # Prompt tokens are known with the end; what changes an adapter has none.
        if state.error is None and state.num_prompt_tokens:
            self._counts.prompt_lengths.observe(state.num_prompt_tokens)
            self._counts.answer_lengths.observe(state.num_tokens)
            self._counts.answer_counts.observe(state.width)
        if self._says_all or isinstance(state.error, EngineError):
            level = logging.WARNING if state.error is not None else logging.INFO
            _log.log(level, "%s", self._line(state, outcome))

    def snapshot(
        self, num_open: int, workers: list[WorkerStats], num_waiting: int = 0
    ) -> StatsSnapshot:
        """Return the counts now, but for those that the service has from others."""
        ended = self._counts.ended.copy()
        now = replace(
            self._counts, open=num_open, workers=workers, waiting=num_waiting, ended=ended
        )
        for each in fields(now):
            if isinstance(histogram := getattr(now, each.name), Histogram):
                setattr(now, each.name, histogram.copy())
        return now

    def _line(self, state: RequestState, outcome: str) -> str:
        """Return what a request was, in logfmt; never its text."""
        fields: dict[str, object] = {
            "model": self._model,
            "request_id": state.sink.request_id,
            "outcome": outcome,
            "worker": "-" if state.worker is None else state.worker,
            "prompt_tokens": state.num_prompt_tokens,
            "generation_tokens": state.num_tokens,
            "responses": state.num_sent,
            "first_ms": round((state.first_at - state.began) * 1e3, 1),
            "total_ms": round((state.sent_at - state.began) * 1e3, 1),
        }
        if isinstance(state.error, EngineError):
            fields["error"] = str(state.error)
        return " ".join(
            ["request", *(f"{name}={_quoted(value)}" for name, value in fields.items())]
        )


def _quoted(value: object) -> str:
    """Return a value without blanks; a client chooses its request's id freely."""
    text = str(value)
    if _PLAIN.fullmatch(text):
        return text
    # JSON leaves characters that begin a line elsewhere, or turn the reading direction around.
    return printable(json.dumps(cut(text, _SHOWN), ensure_ascii=False), 10 * _SHOWN)
