"""How long the tokens of a stream are held, so that several share a response."""

from __future__ import annotations

import math
from typing import Final

import msgspec

RESPONSE_SECONDS: Final = 170e-6
"""CPU of tritonserver and stub for a streamed response under load (`make bench`, 64 streams).

On a machine with little to do it costs more, because each response wakes processes.
"""
MAX_RESPONSES: Final = 4000
"""Responses a second that a stub has to send. This is about half of what it sends on two cores that
it shares with its client; more cores do not help its Python."""
_CPU_SHARE: Final = 0.1
_MIN_INTERVAL: Final = 0.005
_MAX_INTERVAL: Final = 0.05


class FlushPolicy(msgspec.Struct, frozen=True, array_like=True):
    """When a worker sends what its engine has generated.

    A response costs the same however many tokens share it. So at any load the responses of all
    streams together get a share of the machine's cores and of the stub's time, and no more. From
    this follows the interval between two responses of one stream. A few streams are not slowed at
    all.
    """

    responses_per_second: float = math.inf
    """Of all streams of the worker together."""
    flush_seconds: float | None = None
    """An interval that the user chose instead; 0 for none."""
    min_tokens: int = 1
    """Fewest tokens of a response, other than the first and the last one of an answer."""

    @classmethod
    def of(
        cls, cores: int, workers: int, flush_seconds: float | None = None, min_tokens: int = 1
    ) -> FlushPolicy:
        """Return the policy of one worker of a stub, on a machine with so many cores."""
        together = min(cores * _CPU_SHARE / RESPONSE_SECONDS, MAX_RESPONSES)
        return cls(together / workers, flush_seconds, min_tokens)

    def interval(self, streams: float) -> float:
        """Return the seconds between two responses of a stream; 0 if none is held."""
        if self.flush_seconds is not None:
            return self.flush_seconds
        needed = min(streams / self.responses_per_second, _MAX_INTERVAL)
        return needed if needed >= _MIN_INTERVAL else 0.0
