"""Generate as vLLM's documentation has it: a task waits for the output of each token."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from lmi_backend.engines.vllm.inside.replay import ReplayedAnswer, current_replay

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmi_backend.engines.protocol import DeltaSink
    from lmi_backend.engines.vllm.inside.outputs import OutputReader
    from lmi_backend.generation import Continuation


async def generate(
    engine: Any,
    arguments: dict[str, Any],
    reader: OutputReader,
    sink: DeltaSink,
    *,
    continuation: Continuation | None,
    on_added: Callable[[], Awaitable[None]],
) -> None:
    """Generate one request's answers, as `answers.generate` does."""
    given = {"sampling_params": arguments.pop("params"), **arguments}
    arguments.pop("prompt", None)
    resumed = ReplayedAnswer(engine, continuation) if continuation is not None else None
    current_replay.set(resumed)
    async with aclosing(engine.generate(**given)) as outputs:
        del given
        async for output in outputs:
            if resumed is not None:
                resumed.check_begun()
            await on_added()
            for delta in reader.deltas(output):
                sink.take(delta)
