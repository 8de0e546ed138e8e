"""Take a request's outputs where vLLM makes them, and only when somebody wants them.

`AsyncLLM.generate` makes an output of every token and wakes the request's task for it, which asks
a chain of generators. Here vLLM's output handler calls us itself; and tokens that would wait to be
sent stay with its detokeniser until they are, when one output is made of all of them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lmi_backend.engines.vllm import compat

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmi_backend.engines.protocol import Sink


async def hand_on(
    engine: Any, asked: dict[str, Any], read: Callable[[Any], None], sink: Sink
) -> None:
    """Generate like `AsyncLLM.generate`. Cancelling aborts the request.

    Args:
        asked: arguments of `AsyncLLM.add_request`.
        read: gets each RequestOutput.
        sink: says whether tokens may wait.

    Raises:
        Exception: what vLLM raises, or `read`.
    """
    stream, queue = _Stream(read, sink), None
    try:
        queue = await engine.add_request(**asked)
        queue.put = stream.put
        if (state := compat.request_state(engine, queue, asked["request_id"])) is not None:
            stream.hold_tokens_of(state)
        # What came while the request was still being added.
        if (output := queue.get_nowait()) is not None:
            stream.put(output)
        await stream.ended
    except BaseException:
        if not engine.errored:
            await compat.abort(engine, queue, asked["request_id"])
        raise


class _Stream:
    """The outputs of one request."""

    def __init__(self, read: Callable[[Any], None], sink: Sink) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._read, self._may_wait = read, sink.may_wait
        self._held: list[int] = []
        self._make: Callable[..., Any]

    def put(self, output: Any) -> None:
        """Take an output, or the exception that ends the request."""
        if self.ended.done():
            return
        if isinstance(output, Exception):
            self._give()
            self.ended.set_exception(output)
            return
        try:
            self._read(output)
        except Exception as error:  # noqa: BLE001  it must not end the other requests
            self.ended.set_exception(error)
        else:
            if output.finished:
                self.ended.set_result(None)

    def hold_tokens_of(self, state: Any) -> None:
        """Stand between a RequestState of vLLM and the outputs that it makes."""
        self._make = state.make_request_output
        state.make_request_output = self._make_output

    def _make_output(
        self,
        new_token_ids: Sequence[int],
        pooling_output: Any,
        finish_reason: Any,
        *more: Any,
        **named: Any,
    ) -> Any:
        """Make an output of the new tokens and those held, or none and hold them too.

        Parameters are vLLM's by name: an abort gives them so.
        """
        self._held.extend(new_token_ids)
        if finish_reason is None and self._may_wait(self._give):
            return None
        held, self._held = self._held, []
        return self._make(held, pooling_output, finish_reason, *more, **named)

    def _give(self) -> None:
        """Hand on what is held."""
        held, self._held = self._held, []
        try:
            output = self._make(held, None, None, None) if held else None
        except Exception as error:  # noqa: BLE001  it must not end who asks, either
            output = error
        if output is not None:
            self.put(output)
