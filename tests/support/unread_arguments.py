"""Run by the engine's interpreter: tells which of its arguments an implementation does not read.

Reads a JSON list of pairs, implementation and engine configuration. Each engine is started and
asked for one token; what it could not do with an argument is no matter here. Prints for each the
arguments that nothing looked at.
"""

import asyncio
import contextlib
import json
import sys
from typing import Any

import msgspec

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.registry import create_engine
from lmi_backend.errors import ConfigurationError
from lmi_backend.generation import GenerateRequest, Sampling


class Arguments(dict[str, Any]):
    """Remembers the names that were read by name; whoever takes all of them as they are, does."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__(given)
        self.unread = set(given)

    def __getitem__(self, name: str) -> Any:
        self.unread.discard(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.unread.discard(name)
        return super().get(name, default)


class Nobody:
    def take(self, delta: Any) -> None:
        pass

    def defer(self, flush: Any, num_tokens: int) -> bool:
        return False


async def unread(name: str, config: EngineConfig) -> list[str]:
    given = Arguments(config.arguments)
    config.__dict__["arguments"] = given
    engine = create_engine(name, config)
    try:
        await engine.start()
        request = GenerateRequest("a", Sampling(max_tokens=1))
        await engine.generate(request, Nobody())
    except ConfigurationError as error:
        # One that the library does not have at all must not be said to be mapped.
        if "has nothing like" in str(error):
            raise
    finally:
        await engine.close()
    return sorted(given.unread)


def main() -> None:
    cases = msgspec.json.decode(sys.stdin.buffer.read(), type=list[tuple[str, EngineConfig]])
    with contextlib.redirect_stdout(sys.stderr):
        outcomes = [asyncio.run(unread(name, config)) for name, config in cases]
    sys.stdout.write(json.dumps(outcomes))


if __name__ == "__main__":
    main()
