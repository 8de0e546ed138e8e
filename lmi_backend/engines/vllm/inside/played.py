"""A copy of an engine whose core is not there: what it is to have generated is played to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lmi_backend.engines.vllm.inside import compat, names
from lmi_backend.engines.vllm.inside.new_tokens import first_parameter
from lmi_backend.engines.vllm.inside.server_compat import call

_TURNS: Final = 40
"""Of the loop from one token to the next, in which an event of the last one is written."""
_SECONDS: Final = 5.0


class _Core:
    """The client of a core that is not there; it notes the one request."""

    def __init__(self, core: Any) -> None:
        self._core = core
        own = getattr(core, "add_request_async", None)
        self.first_parameters = {"add_request_async": first_parameter(own)} if own else {}
        """By which vLLM may give a request."""
        self.request_id: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    async def add_request_async(self, *given: Any, **named: Any) -> None:
        """Note the request, with any arguments of other releases."""
        (found,) = [
            each.request_id for each in (*given, *named.values()) if hasattr(each, "request_id")
        ]
        self.request_id.set_result(found)

    async def abort_requests_async(self, *_: Any, **__: Any) -> None:
        """Do nothing: there is no core."""


def played(engine: Any, *, hooks: Callable[[Any], object]) -> Any:
    """Return a copy of an AsyncLLM with a core that is not there, and a processor of its own."""
    kind = type(engine)
    # What ends with it is the engine's.
    copy: Any = object.__new__(type(kind.__name__, (kind,), {"__del__": lambda _: None}))
    vars(copy).update(vars(engine))
    processor = engine.output_processor
    copy.output_processor = call(
        type(processor), tokenizer=processor.tokenizer, log_stats=False, stream_interval=1
    )
    copy.engine_core = _Core(engine.engine_core)
    hooks(copy)
    return copy


@dataclass
class PlayedSink:
    """Takes an answer, and defers every other token until the loop's next turn."""

    chunks: list[Any] = field(default_factory=list)
    is_deferring: bool = False

    def take(self, chunk: Any) -> None:
        self.chunks.append(chunk)

    def defer(self, flush: Callable[[], None], num_tokens: int) -> bool:
        self.is_deferring = not self.is_deferring
        if self.is_deferring:
            asyncio.get_running_loop().call_soon(flush)
        return self.is_deferring

    async def drain(self) -> None:
        pass


async def play(
    engine: Any, ids: Sequence[int], skipped: int = 0, *, has_logprobs: bool = False
) -> None:
    """Give an engine the tokens of its one request as its core would."""
    request_id = await engine.engine_core.request_id
    # The second of them, by any name.
    length = getattr(names.FinishReason, "LENGTH", [*names.FinishReason][1])
    for place, token in enumerate(ids[skipped:], skipped + 1):
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        reason = length if place == len(ids) else None
        output = names.EngineCoreOutput(
            request_id=request_id, new_token_ids=[token], finish_reason=reason
        )
        if has_logprobs:
            output.new_logprobs = compat.certain_logprobs([token])
        engine.output_processor.process_outputs([output])


async def together(answering: Awaitable[Any], playing: Awaitable[None]) -> None:
    """Wait for an answer while it is played, and raise what either raises."""
    tasks = [asyncio.ensure_future(answering), asyncio.ensure_future(playing)]
    # What is refused has no core to be played.
    tasks[0].add_done_callback(lambda _: tasks[1].cancel())
    done, pending = await asyncio.wait(tasks, timeout=_SECONDS, return_when=asyncio.FIRST_EXCEPTION)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    for task in done:
        if not task.cancelled():
            task.result()
    if tasks[0] in pending:
        raise TimeoutError(f"no end of the answer in {_SECONDS:.0f} s")
