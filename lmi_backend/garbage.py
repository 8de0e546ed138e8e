"""When Python looks for garbage, in processes that serve."""

from __future__ import annotations

import gc
from typing import Final

_NEW_OBJECTS: Final = 5_000
"""After which the young ones are looked at; Python's own 700 are made by a few requests."""


def spare_collections() -> None:
    """Keep garbage collections short and rare; to be called when all is loaded.

    A model's library is a million objects that live as long as the process: a full collection
    would stop every stream to look at all of them. What requests leave behind has few cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 10, 5)
