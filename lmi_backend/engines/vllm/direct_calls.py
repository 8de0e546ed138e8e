"""Call the code of vLLM's server that makes a stream, without its router and its response.

These take more time than all else that is done once for a stream. What is not a plain stream, and
what is wrong with a body, is left to them.
"""

from __future__ import annotations

import json
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from lmi_backend.engines.vllm import server_compat
from lmi_backend.engines.vllm.asgi import scope_of
from lmi_backend.generation import HttpChunk

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmi_backend.engines.vllm.answer import Answer
    from lmi_backend.generation import HttpRequest

_log = logging.getLogger(__name__)

_JSON: Final = "application/json"
_EVENTS: Final = {"content-type": "text/event-stream; charset=utf-8"}


class _Streamed(msgspec.Struct):
    stream: Literal[True]


_decoder: Final = msgspec.json.Decoder(_Streamed)


class DirectCalls:
    """The calls of one application.

    Args:
        app: vLLM's, with its state.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._calls = server_compat.stream_calls(app.state)

    @property
    def paths(self) -> frozenset[str]:
        """Paths whose streams may be plain."""
        return frozenset(self._calls)

    async def stream(self, request: HttpRequest, answer: Answer) -> bool:
        """Answer a body that asks for a stream; False if the application must answer it."""
        if request.path not in self._calls:
            return False
        events = await self._events(request)
        if events is None:
            return False
        # A chat's first event tells a role, and its first text comes in the same turn. So do all
        # events that are left after the last token.
        held, is_role = b"", request.path == server_compat.CHATS
        async with aclosing(events):
            async for event in events:
                held += (data := event.encode())
                if not is_role and not answer.has_middle:
                    answer.take(HttpChunk(held, headers=_EVENTS))
                    answer.last_data, held = data, b""
                is_role = False
        answer.take(HttpChunk(held, is_last=True, headers=_EVENTS))
        return True

    async def _events(self, request: HttpRequest) -> AsyncGenerator[str, None] | None:
        """Return what writes the events of an answer, before it has begun."""
        if not _asks_for_stream(request.body):
            return None
        create, kind = self._calls[request.path]
        given = {name.lower(): value for name, value in request.headers.items()}
        if given.get("content-type", _JSON).partition(";")[0].lower() != _JSON:
            return None
        try:
            # As the router reads a body.
            body = kind.model_validate(json.loads(request.body))
            events: AsyncGenerator[str, None] = await create(
                body, server_compat.http_request(scope_of(request), self._app)
            )
        except Exception as error:  # noqa: BLE001  the application will say it in its own form
            _log.debug("%s: %s", request.path, error)
            return None
        # Else it is an error.
        return events if hasattr(events, "aclose") else None


def _asks_for_stream(body: bytes) -> bool:
    """Tell whether a body says so; one that cannot be read is not for here."""
    try:
        _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
