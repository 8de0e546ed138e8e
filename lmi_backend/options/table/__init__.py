"""The one table of options. Order is the order of `lmi-backend options`."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from lmi_backend.options.spec import SPECS, AnyOption, EngineSpec, rows_in
from lmi_backend.options.table import common, ended, server
from lmi_backend.options.table.variables import VARIABLES

_MODULES = [
    importlib.import_module(f"{__name__}.{each.name}") for each in pkgutil.iter_modules(__path__)
]
# A module that says what engines are makes them.
_ENGINES = sorted(
    (
        (spec, module)
        for module in _MODULES
        for spec in vars(module).values()
        if isinstance(spec, EngineSpec)
    ),
    key=lambda pair: pair[0].order,
)
SPECS.update((spec.name, spec) for spec, _ in _ENGINES)

ENGINES = tuple(SPECS)
"""What LMI's documents call backends, each with options of its own, and our echo."""

_WITH_ROWS = dict.fromkeys((common, server, *(module for _, module in _ENGINES)))
OPTIONS: tuple[AnyOption, ...] = (
    *(row for module in _WITH_ROWS for row in rows_in(module)),
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
        common.PYTHON_EXECUTABLE,
    )
)
"""Keys that choose the engine, and so the meaning of all others."""


def _rows() -> dict[str, list[AnyOption]]:
    rows: dict[str, list[AnyOption]] = {}
    # The row for fewest engines first: it knows best.
    for option in sorted(OPTIONS, key=lambda option: len(option.engines)):
        for key in (option.name, *option.aliases):
            rows.setdefault(key, []).append(option)
    return rows


KEYS: dict[str, list[AnyOption]] = _rows()
"""Every key a properties file may hold, aliases included, with its rows."""


def find_option(key: str, engine: str) -> AnyOption | None:
    """Return the row of a key that speaks of an engine."""
    return next((option for option in KEYS.get(key, ()) if engine in option.engines), None)


@functools.cache
def live_keys(engine: str) -> tuple[str, ...]:
    """Return the keys that do something under an engine."""
    rows = ((key, find_option(key, engine)) for key in KEYS)
    return tuple(key for key, row in rows if row and row.status_under(engine).word == "mapped")


__all__ = ["CHOICE", "ENGINES", "KEYS", "OPTIONS", "VARIABLES", "find_option", "live_keys"]
