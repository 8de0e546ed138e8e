"""How long the tokens of a stream wait for each other before they are sent."""

from __future__ import annotations

import math
from typing import Final

import msgspec

# CPU of tritonserver and stub for one streamed response; `make bench`, c=64.
_RESPONSE_SECONDS: Final = 170e-6
_SHARE: Final = 0.1
# About half of what one stub sends on two cores that it shares with its client; more cores do not
# help its Python.
_MOST_RESPONSES: Final = 4000
_SHORTEST: Final = 0.005
_LONGEST: Final = 0.05


class FlushPolicy(msgspec.Struct, frozen=True, array_like=True):
    """When a worker hands on what its engine has generated.

    A response costs the same however many tokens share it. So at any load the responses of all
    streams together get a share of the machine's cores and of the stub's time, and no more; what
    that comes to is how far apart those of one stream are. A few streams are not slowed at all.
    """

    responses_per_second: float = math.inf
    """Of all streams of the worker together."""
    flush_seconds: float | None = None
    """A distance that the user chose instead; 0 for none."""
    min_tokens: int = 1
    """Tokens that share a response at least, but for the first and the last one of an answer."""

    @classmethod
    def of(
        cls, cores: int, workers: int, flush_seconds: float | None = None, min_tokens: int = 1
    ) -> FlushPolicy:
        """Return the pace of one of the workers of a stub on a machine with so many cores."""
        together = min(cores * _SHARE / _RESPONSE_SECONDS, _MOST_RESPONSES)
        return cls(together / workers, flush_seconds, min_tokens)

    def interval(self, streams: float) -> float:
        """Return the seconds between two responses of a stream, 0 for no wait at all."""
        if self.flush_seconds is not None:
            return self.flush_seconds
        needed = streams / self.responses_per_second
        return 0.0 if needed < _SHORTEST else min(needed, _LONGEST)
