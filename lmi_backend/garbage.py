"""When Python looks for garbage, in processes that serve."""

from __future__ import annotations

import gc
from typing import Final

_NEW_OBJECTS: Final = 5_000
"""After which the young ones are looked at; Python's own 700 are made by a few requests."""


def expect_growth() -> None:
    """Look for garbage seldom; to be called before libraries are loaded.

    What an import makes stays. Looking at it again and again is an eighth of the time that vLLM's
    modules take, in each of its processes.
    """
    gc.set_threshold(_NEW_OBJECTS, 20, 50)


def spare_collections() -> None:
    """Keep garbage collections short and rare; to be called when all is loaded.

    A model's library is a million objects that live as long as the process: a full collection
    would stop every stream to look at all of them. What requests leave behind has few cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 10, 5)
