"""Choose the engine by the options, and the Python of its workers."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from lmi_backend.options.spec import FEATURES, SPECS, EngineChoice, EngineSpec, Mode, default_engine
from lmi_backend.options.table import common as opt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmi_backend.options.spec import LmiOptions


def find_interpreter(options: LmiOptions, environment: Mapping[str, str]) -> str:
    """Return the interpreter of the workers: the one that is named, else this one.

    Raises:
        OptionError: it is no executable file.
    """
    name = options[opt.PYTHON_EXECUTABLE]
    path = shutil.which(name, path=environment.get("PATH")) if name else sys.executable
    if path is None:
        raise options.error(opt.PYTHON_EXECUTABLE, "is not an executable file")
    return path


_ANY_ENGINE = "djl_python.huggingface"
"""LMI's handler that runs the engine in rolling_batch."""


def choose_engine(options: LmiOptions, environment: Mapping[str, str]) -> EngineChoice:
    """Choose from engine, mpi_mode, rolling_batch, entryPoint and SERVING_FEATURES.

    Raises:
        OptionError: they contradict each other, or name a handler that is not served.
    """
    spec, reason = _engine(options, environment)
    mode, how = _mode(options, spec)
    reasons = [f"engine {spec.name}: {reason}", f"{mode} mode: {how}"]
    if spec.why_implementation:
        reasons.insert(1, f"it runs on {spec.implementation.name}: {spec.why_implementation}")
    return EngineChoice(spec.name, mode, tuple(reasons))


def _engine(options: LmiOptions, environment: Mapping[str, str]) -> tuple[EngineSpec, str]:
    rolling_batch = options[opt.ROLLING_BATCH]
    named = _first(lambda spec: spec.rolling_batch == rolling_batch)
    handler = options[opt.ENTRY_POINT]
    by_handler = _by_handler(options, handler)
    if named and by_handler and named is not by_handler:
        problem = f"runs {by_handler.name}, but rolling_batch is {rolling_batch}"
        raise options.error(opt.ENTRY_POINT, problem)
    if named:
        return named, f"rolling_batch is {rolling_batch}"
    if by_handler:
        return by_handler, f"entryPoint is {handler}"
    if by_engine := _first(lambda spec: spec.engine_word == options[opt.ENGINE]):
        return by_engine, f"engine is {by_engine.engine_word}"
    is_async = options.is_set(opt.ASYNC_MODE) and options[opt.ASYNC_MODE]
    if (
        rolling_batch == "disable"
        and not is_async
        and (unbatched := _first(lambda spec: spec.unbatched))
    ):
        return unbatched, f"rolling_batch is disable, which is {unbatched.unbatched}"
    default = SPECS[default_engine()]
    features = {word.strip() for word in environment.get(FEATURES, "").split(",")} - {""}
    by_feature = _first(lambda spec: spec.feature in features)
    if by_feature and by_feature is not default:
        return by_feature, f"{FEATURES} is {environment[FEATURES]}"
    return default, "LMI's default; rolling_batch and entryPoint name no other"


def _first(is_meant: Callable[[EngineSpec], object]) -> EngineSpec | None:
    return next((spec for spec in SPECS.values() if is_meant(spec)), None)


def own_file(options: LmiOptions) -> str:
    """Return the Python file that option.entryPoint names; it may leave out .py, as a module."""
    entry: str = options[opt.ENTRY_POINT]
    if entry.endswith(".py"):
        return entry
    is_module = entry.isidentifier() and os.path.isfile(options.folder / f"{entry}.py")
    return f"{entry}.py" if is_module else ""


def _by_handler(options: LmiOptions, handler: str) -> EngineSpec | None:
    if handler in ("", _ANY_ENGINE) or own_file(options):
        return None
    specs = {word: spec for spec in SPECS.values() for word in spec.entry_points}
    if handler not in specs:
        handlers = ", ".join(sorted([_ANY_ENGINE, *specs]))
        raise options.error(
            opt.ENTRY_POINT,
            f"is not a handler; accepted: a .py file next to the properties, {handlers}",
        )
    return specs[handler]


def _mode(options: LmiOptions, spec: EngineSpec) -> tuple[Mode, str]:
    if spec.implementation.one_process:
        return "python", spec.implementation.one_process
    if options[opt.ENGINE] == "MPI":
        if options.is_set(opt.MPI_MODE) and not options[opt.MPI_MODE]:
            engine = options.settings[opt.ENGINE.name]
            problem = f"contradicts {engine.name}={engine.value} ({engine.origin})"
            raise options.error(opt.MPI_MODE, problem)
        return "mpi", "engine is MPI"
    if options.is_set(opt.MPI_MODE):
        word = str(options[opt.MPI_MODE]).lower()
        return ("mpi" if options[opt.MPI_MODE] else "python"), f"mpi_mode is {word}"
    if spec.why_mpi:
        return "mpi", spec.why_mpi
    rolling_batch = options[opt.ROLLING_BATCH]
    if spec.mpi_if_named and rolling_batch == spec.rolling_batch:
        return "mpi", f"LMI's default for rolling_batch={rolling_batch}"
    return "python", "nothing requires MPI"
