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
    """Return the first size for which work takes too much time of a core; None where none does.

    Too much is more than these seconds, and more than twice what a quarter of the size explains:
    work that grows with its input is not too slow on a slow machine.
    """
    return next((size for size in sizes(last) if _takes(work, size, seconds)), None)


def _takes(work: Callable[[int], object], size: int, seconds: float) -> bool:
    # Twice, for a collection of garbage may come in between.
    took = _time(work, size)
    if took <= seconds or (took := min(took, _time(work, size))) <= seconds:
        return False
    return took > 8 * min(_time(work, size // 4) for _ in range(3))


def _time(work: Callable[[int], object], size: int) -> float:
    began = time.process_time()
    work(size)
    return time.process_time() - began
