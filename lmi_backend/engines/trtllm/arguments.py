"""Build the arguments of TensorRT-LLM's LLM from the plan."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.trtllm import compat


def llm_arguments(config: EngineConfig, adapters: Iterable[str] = ()) -> tuple[str, dict[str, Any]]:
    """Return the backend, and the arguments of its LLM.

    Args:
        adapters: folders of LoRA adapters, from which the library learns what they change.
    """
    given = {name: _read(text) for name, text in config.passthrough.items()} | config.arguments
    backend = given.pop("backend", None) or _backend_of(config.model)
    if given.get("enable_lora"):
        lora = given.setdefault("lora_config", {})
        lora.setdefault("lora_dir", list(adapters))
    flat = {name: value for name, value in given.items() if not isinstance(value, dict)}
    nested = {name: value for name, value in given.items() if isinstance(value, dict)}
    arguments = {"model": config.model} | flat
    return backend, compat.update_llm_args_with_extra_dict(arguments, nested)


def _read(text: str) -> Any:
    """Read an argument that the library's own types judge: JSON, else text."""
    try:
        return json.loads(text)
    except ValueError:
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def _backend_of(model: str) -> str:
    """Return the backend of a folder: one with built engines needs TensorRT's."""
    return "tensorrt" if any(Path(model).glob("rank*.engine")) else "pytorch"
