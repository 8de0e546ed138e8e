"""The one table of options. Order is the order of `lmi-backend options`."""

from __future__ import annotations

from typing import Any

from lmi_backend.options.option import Option
from lmi_backend.options.table import (
    chat,
    common,
    ended,
    lmi_dist,
    retired,
    server,
    speculative,
    transformers,
    trtllm,
    vllm,
)
from lmi_backend.options.table.variables import VARIABLES

_MODULES = (common, server, vllm, chat, speculative, lmi_dist, trtllm, transformers)

OPTIONS: tuple[Option[Any], ...] = (
    *(value for module in _MODULES for value in vars(module).values() if isinstance(value, Option)),
    *trtllm.BUILD_ROWS,
    *retired.ROWS,
    *ended.rows(),
)
"""Every option, by declaration; a key has a row for each meaning it has."""

CHOICE = frozenset(
    option.name
    for option in (
        common.ENGINE,
        common.MPI_MODE,
        common.ASYNC_MODE,
        common.ROLLING_BATCH,
        common.ENTRY_POINT,
    )
)
"""Keys that choose the engine, and so the meaning of all others."""


def _rows() -> dict[str, list[Option[Any]]]:
    rows: dict[str, list[Option[Any]]] = {}
    # The row for fewest engines first: it knows best.
    for option in sorted(OPTIONS, key=lambda option: len(option.engines)):
        for key in (option.name, *option.aliases):
            rows.setdefault(key, []).append(option)
    return rows


KEYS: dict[str, list[Option[Any]]] = _rows()
"""Every key a properties file may hold, aliases included, with its rows."""


def find_option(key: str, engine: str) -> Option[Any] | None:
    """Return the row of a key that speaks of an engine."""
    return next((option for option in KEYS.get(key, ()) if engine in option.engines), None)


__all__ = ["CHOICE", "KEYS", "OPTIONS", "VARIABLES", "find_option"]
