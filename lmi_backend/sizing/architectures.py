"""The architectures that a config.json names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmi_backend.sizing.config_fields import ConfigFields


def read_architectures(config: ConfigFields) -> tuple[str, ...]:
    """Return the architectures of a model, in the file's order.

    Raises:
        ConfigurationError: they are not a list of names.
    """
    # The file's own come first: a language model inside another is named after itself.
    return _names(config, config.outer.get("architectures") or config.get("architectures") or [])


def read_served_architectures(config: ConfigFields) -> tuple[str, ...]:
    """Return the architectures that an engine may serve a model as.

    vLLM serves a draft model of the speculators library as the model that it drafts for.

    Raises:
        ConfigurationError: they are not a list of names.
    """
    speculators = config.outer.get("speculators_config")
    if not isinstance(speculators, Mapping):
        return read_architectures(config)
    verifier = speculators.get("verifier")
    found = verifier.get("architectures") if isinstance(verifier, Mapping) else None
    return _names(config, found or [])


def _names(config: ConfigFields, found: object) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise config.error("architectures", found, "is not a list of names")
    return tuple(found)
