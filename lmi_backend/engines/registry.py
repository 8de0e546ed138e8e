"""Engines by name. Naming one imports nothing; loading it imports its library."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final, cast

from lmi_backend.errors import ConfigurationError, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.engines.protocol import AdapterEngine, BodyEngine, Engine, EngineConfig
    from lmi_backend.plan import EnginePlan

CUSTOM: Final = "custom"
"""A model whose own handler replaces the engine."""
ENGINES = {
    "echo": "lmi_backend.engines.echo:EchoEngine",
    "vllm": "lmi_backend.engines.vllm.engine:VllmEngine",
}


def refuse_unserved(plan: EnginePlan) -> None:
    """Refuse a plan that this release cannot carry out.

    Raises:
        ConfigurationError: there is no adapter, or no launcher, for what it names.
    """
    if plan.engine not in (*ENGINES, CUSTOM):
        problem = f"engine {plan.engine}: this release cannot start it; it starts"
        message = f"{problem} {', '.join(ENGINES)} as option.rolling_batch"
        raise ConfigurationError(message)
    if plan.mode == "mpi":
        message = (
            "MPI mode: this release cannot start MPI ranks; use engine=Python without mpi_mode"
        )
        raise ConfigurationError(message)
    if plan.nodes > 1:
        message = f"{plan.nodes} nodes: this release starts workers on one node only"
        raise ConfigurationError(message)


def create_engine(name: str, config: EngineConfig) -> Engine:
    """Build the adapter of an engine.

    Raises:
        ConfigurationError: the name is unknown, or the engine's library cannot be imported.
    """
    try:
        module_name, _, class_name = ENGINES[name].partition(":")
    except KeyError:
        message = f"engine {name!r} is unknown; known: {', '.join(ENGINES)}"
        raise ConfigurationError(message) from None
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        message = (
            f"engine {name} cannot be imported by this interpreter ({error}); name one that has "
            "it with option.pythonExecutable"
        )
        raise ConfigurationError(message) from error
    factory = cast("Callable[[EngineConfig], Engine]", getattr(module, class_name))
    return factory(config)


def calls(engine: Engine) -> BodyEngine:
    """Return an engine that reads whole bodies.

    Raises:
        RequestError: this one does not.
    """
    if not hasattr(engine, "call"):
        problem = "holds an OpenAI body, which this model's engine does not read"
        raise RequestError(problem, field="request", accepted="an LMI body, with inputs")
    return cast("BodyEngine", engine)


def adapts(engine: Engine) -> AdapterEngine:
    """Return an engine that takes adapters while it serves.

    Raises:
        RequestError: this one does not.
    """
    if not hasattr(engine, "load_adapter"):
        raise RequestError("cannot be loaded by this model's engine", field="adapter")
    return cast("AdapterEngine", engine)
