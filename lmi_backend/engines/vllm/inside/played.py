"""A copy of an engine whose core is not there: what it is to have generated is played to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from lmi_backend.engines.vllm.inside.server_compat import call


class _Core:
    """The client of a core that is not there; it notes the one request."""

    def __init__(self, core: Any) -> None:
        self._core = core
        self.request_id: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    async def add_request_async(self, request: Any, *_: Any, **__: Any) -> None:
        """Note the request, with any arguments of other releases."""
        self.request_id.set_result(request.request_id)

    async def abort_requests_async(self, *_: Any, **__: Any) -> None:
        """Do nothing: there is no core."""


def played(engine: Any, *, hooks: Callable[[Any], None]) -> Any:
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
