"""Count values by size, as Prometheus does."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Histogram:
    """Counts of values up to each of some edges, and above the last.

    Args:
        edges: ascending; a value that equals one counts below it.
    """

    __slots__ = ("_counts", "edges", "total")

    def __init__(self, edges: Sequence[float]) -> None:
        self.edges = tuple(edges)
        self._counts = [0] * (len(self.edges) + 1)
        self.total = 0.0
        """Sum of all values."""

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value that was seen so many times."""
        self._counts[bisect_left(self.edges, value)] += times
        self.total += value * times

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self._counts)

    def buckets(self) -> Iterator[tuple[str, int]]:
        """Yield each edge, as Prometheus writes it, and how many values are not above it."""
        names = [*map(str, self.edges), "+Inf"]
        yield from zip(names, accumulate(self._counts), strict=True)

    def copy(self) -> Histogram:
        """Return it as it is now."""
        other = Histogram(self.edges)
        other._counts, other.total = self._counts.copy(), self.total
        return other
