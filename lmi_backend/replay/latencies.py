"""When an answer came: its first part, the time between parts, its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lmi_backend.replay.exchange import RecordedAnswer


@dataclass(frozen=True)
class Times:
    """Seconds; None if they are not known."""

    first: float | None = None
    between: float | None = None
    """The mean time between two parts."""
    total: float | None = None


MEASURES: Final = {"first": "first event", "between": "between events", "total": "total"}
"""The name of each field in reports."""
SHARES: Final = (0.5, 0.9, 0.99)
"""Of the answers, in distributions."""


def times_of(answer: RecordedAnswer | None) -> Times:
    """Return when an answer came."""
    if answer is None or answer.error:
        return Times()
    came = answer.arrivals
    gaps = [later - earlier for earlier, later in pairwise(came)]
    between = sum(gaps) / len(gaps) if gaps else None
    return Times(came[0] if came else None, between, answer.seconds)


def known(times: Iterable[Times], measure: str) -> list[float]:
    """Return what is known of a measure, the least first."""
    values = (getattr(each, measure) for each in times)
    return sorted(value for value in values if value is not None)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which a share of the ordered values are."""
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
