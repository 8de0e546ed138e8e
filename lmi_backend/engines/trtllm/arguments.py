"""Build the arguments of TensorRT-LLM's LLM from the plan."""

from __future__ import annotations

import json
from typing import Any

from lmi_backend.adapter_files import seen
from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.trtllm import compat


def llm_arguments(config: EngineConfig) -> dict[str, Any]:
    given = {name: _read(text) for name, text in config.passthrough.items()} | config.arguments
    if given.get("enable_lora"):
        lora = given.setdefault("lora_config", {})
        # From them the library learns what adapters change; one may have been removed since.
        lora.setdefault("lora_dir", [each for each in config.adapters.values() if seen(each)])
    flat = {name: value for name, value in given.items() if not isinstance(value, dict)}
    nested = {name: value for name, value in given.items() if isinstance(value, dict)}
    arguments: dict[str, Any] = {"model": config.model} | flat
    arguments = compat.update_llm_args_with_extra_dict(arguments, nested)
    return arguments


def _read(text: str) -> Any:
    """Read an argument that the library's own types judge: JSON, else text."""
    try:
        return json.loads(text)
    except ValueError:
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)
