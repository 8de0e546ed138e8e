"""Engines that TensorRT-LLM builds ahead are not served: 1.3.0rc20 is its last release with them.

Source: NVIDIA's migration guide "TensorRT Backend Removed" (docs/source/legacy).
"""

from __future__ import annotations

import os
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import PlanError

if TYPE_CHECKING:
    from lmi_backend.options.resolve import LmiOptions
    from lmi_backend.options.versions import Planned

_ENDED: Final = "TensorRT-LLM has no TensorRT backend since 1.3.0rc22"
REASON: Final = (
    "only an engine is built with it, and TensorRT-LLM builds none since 1.3.0rc22; serve a "
    "checkpoint that is quantised already"
)
"""Why an option of the builder is refused."""
_ENGINE_FILES: Final = "rank*.engine"
_WEIGHTS: Final = ("*.safetensors", "*.bin", "*.pt", "*.pth")
_CHECKPOINT: Final = "the checkpoint that it was built from (option.model_id: a folder or a hub id)"


def refuse_engines(options: LmiOptions, model: str, _release: Planned) -> list[str]:
    """Refuse the TensorRT backend, and a folder of built engines.

    Args:
        model: the folder, or another place, whose content is not known.

    Raises:
        ConfigurationError: one of them is wanted.
    """
    asked = options.passthrough.get("backend")
    if asked is not None and asked.value.strip().lower() == "tensorrt":
        raise asked.error(f"is refused: {_ENDED}; leave it out and serve {_CHECKPOINT}")
    try:
        files = os.listdir(model) if model else []
    except (OSError, ValueError):
        # A hub's model, or no name of a folder.
        return []
    engine = min((name for name in files if fnmatch(name, _ENGINE_FILES)), default="")
    has_weights = any(fnmatch(name, weights) for name in files for weights in _WEIGHTS)
    # Another backend reads the weights next to it.
    if engine and not (asked and has_weights):
        beside = "; option.backend=pytorch serves the weights next to it" if has_weights else ""
        raise PlanError(
            f"{model}: {engine} is a built engine, and {_ENDED}; serve {_CHECKPOINT}{beside}"
        )
    return []
