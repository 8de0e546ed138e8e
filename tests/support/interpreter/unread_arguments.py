"""Run by `vllm_interpreter`: tells which of its arguments an implementation does not read.

Its one word, if any, is the folder of another copy of the package. Reads a JSON list of
implementations, engine configurations and numbers of ranks. Each engine is started and asked for
one token. Prints for each the arguments that nothing looked at, and what was refused.
"""

import asyncio
import contextlib
import json
import os
import sys
from typing import Any

import msgspec

sys.path[:0] = sys.argv[1:]

from lmi_backend.engine_config import EngineConfig  # noqa: E402
from lmi_backend.engines.registry import create_engine  # noqa: E402
from lmi_backend.errors import ConfigurationError  # noqa: E402
from lmi_backend.generation import GenerateRequest, Sampling  # noqa: E402


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


async def unread(name: str, config: EngineConfig, ranks: int) -> tuple[list[str], str]:
    os.environ["WORLD_SIZE"] = str(ranks)
    given, refused = Arguments(config.arguments), ""
    config.__dict__["arguments"] = given
    engine = create_engine(name, config)
    try:
        await engine.start()
        request = GenerateRequest("a", Sampling(max_tokens=1))
        await engine.generate(request, Nobody())
    except ConfigurationError as error:
        refused = str(error)
    finally:
        await engine.close()
    return sorted(given.unread), refused


def main() -> None:
    cases = msgspec.json.decode(sys.stdin.buffer.read(), type=list[tuple[str, EngineConfig, int]])
    with contextlib.redirect_stdout(sys.stderr):
        outcomes = [asyncio.run(unread(*case)) for case in cases]
    sys.stdout.write(json.dumps(outcomes))


if __name__ == "__main__":
    main()
