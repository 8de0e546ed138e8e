"""Take a request's outputs where vLLM makes them, and let it make fewer of them.

`AsyncLLM.generate` makes an output of every token, and wakes the request's task for it, which
resumes a chain of generators. Here vLLM's output handler calls us itself. Tokens that the sink
defers stay with vLLM's detokeniser, and one output is made of all of them.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from lmi_backend.engines.vllm.inside import compat, holds
from lmi_backend.engines.vllm.inside.new_tokens import read_tokens

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from lmi_backend.engines.protocol import Sink
    from lmi_backend.engines.vllm.inside.outputs import OutputReader


async def _nothing() -> None:
    """Do nothing when a request was added."""


async def generate(
    engine: Any,
    arguments: dict[str, Any],
    reader: OutputReader,
    sink: Sink,
    *,
    on_added: Callable[[], Awaitable[None]] = _nothing,
) -> None:
    """Generate like `AsyncLLM.generate`. Cancelling aborts the request.

    Args:
        arguments: of `AsyncLLM.add_request`. The prompt is removed: it may hold images.
        reader: makes deltas of each RequestOutput.
        sink: takes the deltas.
        on_added: called when vLLM has read the prompt.

    Raises:
        Exception: what vLLM raises, or what the sink raises.
    """
    if not holds.is_held("output_hook"):
        await generate_publicly(engine, arguments, reader, sink, on_added)
        return
    hook, queue = _OutputHook(reader, sink), None
    try:
        queue = await engine.add_request(**arguments)
        if _attach(hook, engine, queue, arguments["request_id"]):
            arguments.pop("prompt", None)
            # What came while the request was still being added.
            if (output := queue.get_nowait()) is not None:
                hook.put(output)
            if not hook.is_attached and arguments["params"].n == 1 and not hook.ended.done():
                holds.let_go("output_hook", "a state of each request", "none of this one")
            await on_added()
            await hook.ended
            return
    except BaseException:
        if not engine.errored:
            await compat.abort(engine, queue, arguments["request_id"])
        raise
    # Nothing was taken from it yet.
    await compat.abort(engine, queue, arguments["request_id"])
    await generate_publicly(engine, arguments, reader, sink, on_added)


def _attach(hook: _OutputHook, engine: Any, queue: Any, request_id: str) -> bool:
    """Have a hook get the outputs of a request; False if this vLLM does not let it."""

    def attach() -> None:
        state = compat.request_state(engine, queue, request_id)
        queue.put = hook.put
        if state is not None:
            hook.attach(state)

    return holds.probe("output_hook", "a queue and a state of each request to hook into", attach)


async def generate_publicly(
    engine: Any,
    arguments: dict[str, Any],
    reader: OutputReader,
    sink: Sink,
    on_added: Callable[[], Awaitable[None]] = _nothing,
) -> None:
    """Generate as vLLM's documentation has it."""
    given = {"sampling_params": arguments.pop("params"), **arguments}
    arguments.pop("prompt", None)
    async with aclosing(engine.generate(**given)) as outputs:
        del given
        async for output in outputs:
            await on_added()
            for delta in reader.deltas(output):
                sink.take(delta)


class _OutputHook:
    """Stands between one request's outputs in vLLM and its sink."""

    def __init__(self, reader: OutputReader, sink: Sink) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._deltas, self._take, self._defer = reader.deltas, sink.take, sink.defer
        self._deferred_ids: list[int] = []
        self._is_whole = reader.is_whole
        self._first_at: float | None = None
        """When the first token came, of one answer."""
        self._make: Callable[..., Any]
        self._decode: Callable[[], None] = lambda: None
        self.is_attached = False

    def put(self, output: Any) -> None:
        """Take an output, or the exception that fails the request."""
        if self.ended.done():
            return
        if isinstance(output, Exception):
            self._flush()
            self.ended.set_exception(output)
            return
        try:
            for delta in self._deltas(output):
                if self._is_whole and self._first_at is not None:
                    delta.decode_seconds = time.monotonic() - self._first_at
                self._take(delta)
        except Exception as error:  # noqa: BLE001  it must not end the other requests
            self.ended.set_exception(error)
        else:
            if output.finished:
                self.ended.set_result(None)

    def attach(self, state: Any) -> None:
        """Decide from now on when a RequestState of vLLM makes an output."""
        self.is_attached = True
        self._make = state.make_request_output
        state.make_request_output = self._make_output
        self._decode = read_tokens(state, self._add).decode

    def _make_output(
        self,
        new_token_ids: Sequence[int],
        pooling_output: Any,
        finish_reason: Any,
        *more: Any,
        **named: Any,
    ) -> Any:
        """Return an output of the new tokens and the deferred ones, or None and defer them too.

        The parameters have vLLM's names, because an abort gives them by name.
        """
        self._deferred_ids.extend(new_token_ids)
        # vLLM's own note of it is among what `compat.count_less` turns off.
        if self._first_at is None and new_token_ids:
            self._first_at = time.monotonic()
        if finish_reason is None and self._defer(self._flush, len(self._deferred_ids)):
            return None
        # An abort comes between tokens.
        self._decode()
        ids, self._deferred_ids = self._deferred_ids, []
        return self._make(ids, pooling_output, finish_reason, *more, **named)

    def _add(self, new_token_ids: Sequence[int]) -> None:
        """Take new tokens of the middle, for which vLLM makes no output."""
        self._deferred_ids.extend(new_token_ids)
        if not self._defer(self._flush, len(self._deferred_ids)):
            self._flush()

    def _flush(self) -> None:
        """Make an output of the deferred tokens."""
        ids, self._deferred_ids = self._deferred_ids, []
        self._decode()
        try:
            output = self._make(ids, None, None, None) if ids else None
        except Exception as error:  # noqa: BLE001  it must not end the caller, either
            output = error
        if output is not None:
            self.put(output)
