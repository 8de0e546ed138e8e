"""Try a fast path, and turn it off where it answers otherwise than vLLM's public way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from lmi_backend.engines.vllm.inside import fast_paths, names
from lmi_backend.engines.vllm.inside.new_tokens import NewTokens

SAME: Final = "the same answer as without it"
_SHOWN: Final = 400


async def attempt(name: str, expected: Any, does: Callable[[], Awaitable[Any]]) -> None:
    """Turn a path off if what it makes is not as expected, or raises."""
    if not fast_paths.is_on(name):
        return
    try:
        made = await does()
    except Exception as error:  # noqa: BLE001  whatever it is, the path does not work
        fast_paths.turn_off(name, SAME, f"{type(error).__name__}: {error}")
        return
    if made != expected:
        fast_paths.turn_off(name, SAME, shown(made, expected))


def shown(made: Sequence[Any], expected: Sequence[Any]) -> str:
    """Return the first part of an answer that differs."""
    pairs = zip(made, expected, strict=False)
    ours, theirs = next((pair for pair in pairs if pair[0] != pair[1]), (made, expected))
    return f"{ours!r} and not {theirs!r}"[:_SHOWN]


def attach_new_tokens(engine: Any) -> NewTokens:
    """Have new tokens taken past the output processor of a copy of the engine."""
    found = NewTokens(engine, names.EngineCoreOutput(request_id="", new_token_ids=[]))
    found.attach()
    return found


def attach_nothing(_: Any) -> None:
    """Leave a copy of the engine as vLLM has it."""
