"""Build the arguments of TensorRT-LLM's LLM from the plan."""

from __future__ import annotations

import json
from typing import Any

from lmi_backend.adapter_files import seen
from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.trtllm import compat
from lmi_backend.options.table.trtllm import STEP_COUNTS
from lmi_backend.options.tensorrt_engines import engine_file, is_tensorrt


def llm_arguments(config: EngineConfig) -> tuple[bool, dict[str, Any]]:
    """Return whether the TensorRT backend is meant, and the arguments of its LLM."""
    given = {name: _read(text) for name, text in config.passthrough.items()} | config.arguments
    asked = str(given.pop("backend", None) or "")
    builds_engines = is_tensorrt(asked) if asked else bool(engine_file(config.model))
    if builds_engines:
        # It counts its steps without being asked, and has no such argument.
        given.pop(STEP_COUNTS, None)
    elif asked:
        given["backend"] = asked
    if given.get("enable_lora"):
        lora = given.setdefault("lora_config", {})
        # From them the library learns what adapters change; one may have been removed since.
        lora.setdefault("lora_dir", [each for each in config.adapters.values() if seen(each)])
    flat = {name: value for name, value in given.items() if not isinstance(value, dict)}
    nested = {name: value for name, value in given.items() if isinstance(value, dict)}
    arguments = {"model": config.model} | flat
    return builds_engines, compat.update_llm_args_with_extra_dict(arguments, nested)


def _read(text: str) -> Any:
    """Read an argument that the library's own types judge: JSON, else text."""
    try:
        return json.loads(text)
    except ValueError:
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)
