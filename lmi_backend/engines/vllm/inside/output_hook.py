"""Take a request's outputs where vLLM makes them, and let it make fewer of them.

`AsyncLLM.generate` makes an output of every token, and wakes the request's task for it, which
resumes a chain of generators. Here vLLM's output handler calls us itself. Tokens that the sink
defers stay with vLLM's detokeniser, and one output is made of all of them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol

from lmi_backend.engines.protocol import Deferring
from lmi_backend.engines.vllm.inside import compat, fast_paths, idle, token_reader
from lmi_backend.engines.vllm.inside.continuation import check_begun
from lmi_backend.engines.vllm.inside.new_logprobs import NewLogprobs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from lmi_backend.engines.vllm.inside.new_logprobs import Position


class ChunkMaker(Protocol):
    """Makes the chunks of one request."""

    is_whole: bool
    """Whether each answer comes as one chunk."""
    wants_tokens: bool
    """Whether chunks tell log probabilities."""

    def deltas(self, output: Any, /) -> Iterable[Any]:
        """Yield the chunks of an output of vLLM."""
        ...

    def of_new_tokens(
        self,
        text: str,
        ids: Sequence[int],
        positions: Sequence[Position],
        logprobs: NewLogprobs | None,
        /,
    ) -> Any:
        """Return the chunk of new tokens, for which vLLM makes no output."""
        ...


class OutputSink(Deferring, Protocol):
    """Takes the chunks of one request."""

    def take(self, chunk: Any, /) -> None:
        """Take a chunk."""
        ...


async def _nothing() -> None:
    """Do nothing when a request was added."""


async def generate(
    engine: Any,
    arguments: dict[str, Any],
    reader: ChunkMaker,
    sink: OutputSink,
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
    if not fast_paths.is_on("output_hook"):
        await generate_publicly(engine, arguments, reader, sink, on_added)
        return
    hook, queue = _OutputHook(reader, sink), None
    try:
        queue = await engine.add_request(**arguments)
        check_begun()
        if _attach(hook, engine, queue, arguments["request_id"]):
            arguments.pop("prompt", None)
            # What came while the request was still being added; a release may keep it one by one.
            while not hook.ended.done() and (output := queue.get_nowait()) is not None:
                hook.put(output)
            if not hook.is_attached and arguments["params"].n == 1 and not hook.ended.done():
                fast_paths.turn_off("output_hook", "a state of each request", "none of this one")
            await on_added()
            await hook.ended
            return
    except BaseException:
        if not engine.errored:
            await compat.abort(engine, queue, arguments["request_id"])
        raise
    # Nothing was taken from it yet, nor is the end that it has now.
    hook.ended.cancel()
    await compat.abort(engine, queue, arguments["request_id"])
    await generate_publicly(engine, arguments, reader, sink, on_added)


def _attach(hook: _OutputHook, engine: Any, queue: Any, request_id: str) -> bool:
    """Have a hook get the outputs of a request; False if this vLLM does not let it."""

    def attach() -> None:
        state = compat.request_state(engine, queue, request_id)
        queue.put = hook.put
        if state is not None:
            hook.attach(state)

    return fast_paths.probe(
        "output_hook", "a queue and a state of each request to hook into", attach
    )


async def generate_publicly(
    engine: Any,
    arguments: dict[str, Any],
    reader: ChunkMaker,
    sink: OutputSink,
    on_added: Callable[[], Awaitable[None]] = _nothing,
) -> None:
    """Generate as vLLM's documentation has it."""
    given = {"sampling_params": arguments.pop("params"), **arguments}
    arguments.pop("prompt", None)
    async with aclosing(engine.generate(**given)) as outputs:
        del given
        async for output in outputs:
            check_begun()
            await on_added()
            for delta in reader.deltas(output):
                sink.take(delta)


class _OutputHook:
    """Stands between one request's outputs in vLLM and its sink."""

    def __init__(self, reader: ChunkMaker, sink: OutputSink) -> None:
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._reader, self._take, self._defer = reader, sink.take, sink.defer
        self._deferred_ids: list[int] = []
        """Tokens for an output that vLLM will make."""
        self._read_ids: Sequence[int] = ()
        """Later tokens, which vLLM makes no output for and has not decoded; one list is empty."""
        self._positions: list[Position] = []
        self.logprobs: NewLogprobs | None = None
        self.num_passed, self.noted = 0, self  # see `token_reader.TokenTaker`
        self._first_at: float | None = None
        """When the first token came, of one answer."""
        self._make: Callable[..., Any]
        self._state: Any = None
        self._decode: Callable[[], None] = lambda: None
        self._interval = 1
        """Fewest tokens of a delta of the middle."""
        self.is_attached = False

    def put(self, output: Any) -> None:
        """Take an output, or the exception that fails the request."""
        if threading.get_ident() != self._thread:
            # Those that come next are taken by vLLM's public way.
            fast_paths.turn_off("output_hook", idle.ONE_THREAD, "outputs of another thread")
            self._loop.call_soon_threadsafe(self.put, output)
            return
        if self.ended.done():
            return
        if isinstance(output, Exception):
            self._interval = 1
            self._flush()
            if not self.ended.done():
                self.ended.set_exception(output)
            return
        try:
            for delta in self._reader.deltas(output):
                if self._reader.is_whole and self._first_at is not None:
                    delta.decode_seconds = time.monotonic() - self._first_at
                self._take(delta)
            if output.finished:
                self.ended.set_result(None)
        except Exception as error:  # noqa: BLE001  it must not end the other requests
            self.ended.set_exception(error)

    def attach(self, state: Any) -> None:
        """Decide from now on when a RequestState of vLLM makes an output."""
        self.is_attached = True
        self._make, self._state = state.make_request_output, state
        state.make_request_output = self._make_output
        if self._reader.is_whole or not compat.may_take_interval(state):
            self._decode = token_reader.read_tokens(state, self._add).decode
            return
        # vLLM would be called for each token, to say that there are too few.
        self._interval, unsent = compat.take_interval(state)
        self._deferred_ids += unsent
        # Without this vLLM reads each output that has log probabilities.
        self.logprobs = NewLogprobs.of(state) if self._reader.wants_tokens else None
        token_reader.read(state, self)

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
        if threading.get_ident() != self._thread:
            ids, self._deferred_ids = [*self._deferred_ids, *new_token_ids], []
            return self._make(ids, pooling_output, finish_reason, *more, **named)
        self.settle()
        self._deferred_ids.extend(new_token_ids)
        is_first = self._first_at is None and bool(new_token_ids)
        if is_first:
            # vLLM's own note of it is among what `compat.count_less` turns off.
            self._first_at = time.monotonic()
            idle.note_use("output_hook")
        if finish_reason is None:
            count = len(self._deferred_ids)
            if (count < self._interval and not is_first) or self._defer(self._flush, count):
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

    def take(self, ids: Sequence[int], lists: Any, /) -> bool:
        """Take new tokens of the middle of a stream, which vLLM will not see again."""
        if self._deferred_ids:
            if len(self._deferred_ids) < self._interval:
                return False
            self._make_deferred()
        if self.logprobs is not None:
            positions = token_reader.candidates(self.logprobs, ids, lists)
            if positions is None:
                return False
            self._positions += positions
        # Most have none before: they are handed over at once, then.
        if self._read_ids:
            ids = [*self._read_ids, *ids]
        self._read_ids = ids
        count = len(ids)
        if count >= self._interval and not self._defer(self._flush, count):
            self.settle()
        return True

    def settle(self) -> None:
        """Make a delta of the tokens that vLLM makes no output of, if they are enough."""
        if not self._read_ids:
            return
        ids, self._read_ids = self._read_ids, ()
        positions, self._positions = self._positions, []
        try:
            detokenizer = self._state.detokenizer
            detokenizer.update(ids, False)
            if self.ended.done():
                return
            if len(ids) < self._interval and self.logprobs is None:
                # They share the next output of vLLM.
                self._deferred_ids += ids
                return
            text = detokenizer.get_next_output_text(finished=False, delta=True)
            self._take(self._reader.of_new_tokens(text, ids, positions, self.logprobs))
        except Exception as error:  # noqa: BLE001  it must not end the other requests
            if not self.ended.done():
                self.ended.set_exception(error)

    def _flush(self) -> None:
        """Hand over the deferred tokens, if they are enough."""
        if len(self._read_ids or self._deferred_ids) >= self._interval:
            self.settle()
            self._make_deferred()

    def _make_deferred(self) -> None:
        """Have vLLM make an output of the deferred tokens."""
        if not self._deferred_ids:
            return
        ids, self._deferred_ids = self._deferred_ids, []
        self._decode()
        try:
            output = self._make(ids, None, None, None)
        except Exception as error:  # noqa: BLE001  it must not end the caller, either
            output = error
        if output is not None:
            self.put(output)
