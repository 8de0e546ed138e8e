"""Engines by name. Naming one imports nothing; loading it imports its library."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, cast

from lmi_backend.errors import ConfigurationError
from lmi_backend.options.spec import Implementation, implementations

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.engine_config import EngineConfig
    from lmi_backend.engines.protocol import Engine, Rank


def create_engine(name: str, config: EngineConfig) -> Engine:
    """Build the implementation of an engine.

    Raises:
        ConfigurationError: the name is unknown, or the engine's library cannot be imported.
    """
    return cast("Engine", _create(name, _implementation(name).engine, config))


def create_follower(name: str, config: EngineConfig) -> Rank:
    """Build what the ranks after the first run; raises like `create_engine`."""
    implementation = _implementation(name)
    target = implementation.node if is_further_node(config) else implementation.follower
    return cast("Rank", _create(name, target, config))


def is_further_node(config: EngineConfig) -> bool:
    """Tell whether an engine's own mode over several machines has this one after the first."""
    return bool(config.arguments.get("node_rank"))


def _implementation(name: str) -> Implementation:
    engines = implementations()
    if name not in engines:
        raise ConfigurationError(f"engine {name!r} is unknown; known: {', '.join(sorted(engines))}")
    return engines[name]


def _create(name: str, target: str, config: EngineConfig) -> object:
    module_name, _, class_name = target.partition(":")
    library = _implementation(name).library
    # A plugin of vLLM's is a library that vLLM itself does without.
    if library and importlib.util.find_spec(library) is None:
        raise _lacking(name, f"No module named {library!r}")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise _lacking(name, error) from error
    factory = cast("Callable[[EngineConfig], object]", getattr(module, class_name))
    return factory(config)


def _lacking(name: str, problem: object) -> ConfigurationError:
    return ConfigurationError(
        f"engine {name} cannot be imported by this interpreter ({problem}); name one that has "
        "it with option.pythonExecutable"
    )
