"""Whether work grows with its input, or faster."""

import time
from collections.abc import Callable, Iterator

_SMALL = (8, 12, 16, 20, 24, 28, 32, 40)
"""What grows without measure is seen at one of them, and ends."""


def sizes(last: int) -> Iterator[int]:
    """Yield sizes up to `last`, the later ones four times as large as the one before."""
    size = _SMALL[-1]
    yield from _SMALL
    while (size := size * 4) < last:
        yield size
    yield last


def too_slow(work: Callable[[int], object], last: int, seconds: float) -> int | None:
    """Return the first size for which work takes so much time of a core; None where none does."""
    return next((size for size in sizes(last) if _takes(work, size, seconds)), None)


def _takes(work: Callable[[int], object], size: int, seconds: float) -> bool:
    # Twice, for a collection of garbage may come in between.
    return _time(work, size) > seconds and _time(work, size) > seconds


def _time(work: Callable[[int], object], size: int) -> float:
    began = time.process_time()
    work(size)
    return time.process_time() - began
