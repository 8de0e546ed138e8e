"""Run by the engine's interpreter: builds vLLM's arguments of plans, without starting an engine.

Reads a JSON list of engine configurations, and prints for each what went wrong; null for nothing.
"""

import contextlib
import dataclasses
import functools
import json
import sys
from typing import Any

import msgspec
from pydantic import ConfigDict, PydanticSchemaGenerationError, TypeAdapter, ValidationError

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.vllm import compat, names, starting

# Each plan would patch vLLM's fetching of media once more.
starting.media.guard_media = lambda _: None
# To build the parser of all arguments takes longer than to read one with it.
compat.argument_parser = functools.cache(compat.argument_parser)
TYPES = {field.name: field.type for field in dataclasses.fields(names.AsyncEngineArgs)}


def outcome(config: EngineConfig) -> str | None:
    try:
        starting.engine_args(config)
    except Exception as error:  # noqa: BLE001  a KeyError is what this looks for
        return f"{type(error).__name__}: {error}"
    if unknown := set(config.arguments) - set(TYPES):
        return f"no argument of vLLM: {sorted(unknown)}"
    problems = [mismatch(name, config.arguments[name]) for name in config.arguments]
    return "; ".join(filter(None, problems)) or None


def mismatch(name: str, value: Any) -> str:
    """Tell whether vLLM declares another type than that of the value."""
    try:
        _adapter(name).validate_python(value)
    except ValidationError as error:
        return f"{name}={value!r}: {error.errors()[0]['msg']}"
    return ""


@functools.cache
def _adapter(name: str) -> TypeAdapter[Any]:
    kind: Any = TYPES[name]
    try:
        return TypeAdapter(kind)
    except PydanticSchemaGenerationError:
        # torch.dtype
        return TypeAdapter(kind, config=ConfigDict(arbitrary_types_allowed=True))


def main() -> None:
    configs = msgspec.json.decode(sys.stdin.buffer.read(), type=list[EngineConfig])
    with contextlib.redirect_stdout(sys.stderr):
        outcomes = [outcome(config) for config in configs]
    sys.stdout.write(json.dumps(outcomes))


if __name__ == "__main__":
    main()
