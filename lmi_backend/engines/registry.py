"""Engines by name. Naming one imports nothing; loading it imports its library."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final, cast

from lmi_backend.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmi_backend.engine_config import EngineConfig
    from lmi_backend.engines.protocol import Engine, Rank
    from lmi_backend.plan import EnginePlan

CUSTOM: Final = "custom"
"""A model whose own handler replaces the engine."""
ENGINES = {
    "echo": "lmi_backend.engines.echo:EchoEngine",
    "neuronx": "lmi_backend.engines.transformers.neuronx:NeuronxEngine",
    "transformers": "lmi_backend.engines.transformers.engine:TransformersEngine",
    "trtllm": "lmi_backend.engines.trtllm.engine:TrtllmEngine",
    "vllm": "lmi_backend.engines.vllm.engine:VllmEngine",
}
FOLLOWERS = {
    "echo": "lmi_backend.engines.echo:EchoFollower",
    "transformers": "lmi_backend.engines.transformers.engine:TransformersFollower",
    "trtllm": "lmi_backend.engines.trtllm.engine:TrtllmFollower",
    "vllm": "lmi_backend.engines.vllm.follower:VllmFollower",
}
"""What the ranks after the first run."""


def refuse_unserved(plan: EnginePlan) -> None:
    """Refuse a plan that cannot be carried out here.

    Raises:
        ConfigurationError: there is no engine implementation, or no launcher, for what it names.
    """
    if plan.engine not in (*ENGINES, CUSTOM):
        problem = f"engine {plan.engine}: this release cannot start it; it starts"
        message = f"{problem} {', '.join(ENGINES)} as option.rolling_batch"
        raise ConfigurationError(message)
    if plan.parallel.mode == "mpi" and not plan.parallel.mpirun:
        message = (
            "MPI mode needs Open MPI's mpirun, which is not on PATH: install Debian's openmpi-bin "
            "or lmi-backend[mpi], or set engine=Python and option.mpi_mode=false"
        )
        raise ConfigurationError(message)
    if plan.parallel.nodes > 1 and plan.parallel.mode == "python" and plan.engine != "vllm":
        message = f"{plan.parallel.nodes} nodes: engine {plan.engine} needs engine=MPI for that"
        raise ConfigurationError(message)


def create_engine(name: str, config: EngineConfig) -> Engine:
    """Build an engine from its implementation.

    Raises:
        ConfigurationError: the name is unknown, or the engine's library cannot be imported.
    """
    return cast("Engine", _create(ENGINES, name, config))


def create_follower(name: str, config: EngineConfig) -> Rank:
    """Build what the ranks after the first run; raises like `create_engine`."""
    return cast("Rank", _create(FOLLOWERS, name, config))


def _create(table: Mapping[str, str], name: str, config: EngineConfig) -> object:
    try:
        module_name, _, class_name = table[name].partition(":")
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
    factory = cast("Callable[[EngineConfig], object]", getattr(module, class_name))
    return factory(config)
