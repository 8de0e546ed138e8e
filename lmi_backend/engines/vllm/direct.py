"""Take a request's outputs where vLLM makes them, without a task to wake for each token.

`AsyncLLM.generate` wakes the request's task for every output, and the task asks a chain of
generators. Here vLLM's output handler calls us itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lmi_backend.engines.vllm import compat

if TYPE_CHECKING:
    from collections.abc import Callable


async def hand_on(engine: Any, asked: dict[str, Any], take: Callable[[Any], None]) -> None:
    """Generate like `AsyncLLM.generate`. Cancelling aborts the request.

    Args:
        asked: arguments of `AsyncLLM.add_request`.
        take: gets each RequestOutput.

    Raises:
        Exception: what vLLM raises, or `take`.
    """
    queue = await engine.add_request(**asked)
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def put(output: Any) -> None:
        if ended.done():
            return
        if isinstance(output, Exception):
            ended.set_exception(output)
            return
        try:
            take(output)
        except Exception as error:  # noqa: BLE001  it must not end the other requests
            ended.set_exception(error)
        else:
            if output.finished:
                ended.set_result(None)

    queue.put = put
    try:
        # What came while the request was still being added.
        if (output := queue.get_nowait()) is not None:
            put(output)
        await ended
    except BaseException:
        if not engine.errored:
            await compat.abort(engine, queue, asked["request_id"])
        raise
