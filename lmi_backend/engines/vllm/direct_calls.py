"""Call the endpoints of vLLM's server without its middleware, its router and its response.

These take more time than all else that is done once for a short answer, and a share of each event.
A body that cannot be read, and what no endpoint takes, is left to them.
"""

from __future__ import annotations

import json
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.engines.vllm import server_compat
from lmi_backend.engines.vllm.asgi import scope_of
from lmi_backend.generation import HttpChunk

if TYPE_CHECKING:
    from lmi_backend.engines.vllm.answer import Answer
    from lmi_backend.generation import HttpRequest

_log = logging.getLogger(__name__)

_JSON: Final = "application/json"


class DirectCalls:
    """The calls of one application.

    Args:
        app: vLLM's, with its state.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._endpoints = server_compat.endpoints(app)
        self.plain_paths = server_compat.plain_paths(app.state) & self._endpoints.keys()
        """Paths whose streams may be plain."""
        if self._endpoints:
            paths = ", ".join(sorted(self._endpoints))
            _log.info("vLLM's code for %s is called without its HTTP server", paths)
        else:
            _log.info(
                "bodies pass all of vLLM's HTTP server: an option or a plugin looks at answers"
            )

    async def respond(self, request: HttpRequest, answer: Answer) -> bool:
        """Answer a body; False if the application must."""
        found = self._endpoints.get(request.path)
        if found is None or not _is_json_body(request):
            return False
        endpoint, read = found
        try:
            # As the router reads a body.
            body = read(json.loads(request.body))
        except Exception as error:  # noqa: BLE001  the application will say it in its own form
            _log.debug("%s: %s", request.path, error)
            return False
        asked = server_compat.http_request(scope_of(request), self._app)
        try:
            response = await endpoint(body, asked)
        except Exception as error:
            if (handler := self._handler(error)) is None:
                raise
            response = await handler(asked, error)
        is_chat = request.path == server_compat.CHATS
        is_plain_chat = answer.may_be_plain and is_chat
        answer.holds_role = is_chat and not is_plain_chat
        await _send(response, answer, has_role=is_plain_chat)
        return True

    def _handler(self, error: Exception) -> Any:
        """Return what the application answers an error with, found as its router finds it."""
        handlers = self._app.exception_handlers
        return next((handlers[each] for each in type(error).__mro__ if each in handlers), None)


async def _send(response: Any, answer: Answer, *, has_role: bool) -> None:
    """Hand over a response of Starlette's.

    Args:
        has_role: whether its first event tells a chat's role, with the first text in the same turn.
    """
    head = HttpChunk(status=response.status_code, headers=dict(response.headers))
    if not hasattr(response, "body_iterator"):
        head.data, head.is_last = response.body, True
        answer.take(head)
        return
    # What comes in one turn is one chunk: the role, and all events after the last token.
    held = b""
    async with aclosing(response.body_iterator) as events:
        async for event in events:
            data = event.encode() if isinstance(event, str) else bytes(event)
            held += data
            if not has_role and not answer.has_middle:
                answer.take(HttpChunk(held, status=head.status, headers=head.headers))
                answer.last_data, held = data, b""
            has_role = False
    answer.take(HttpChunk(held, is_last=True, status=head.status, headers=head.headers))


def _is_json_body(request: HttpRequest) -> bool:
    """Tell whether it is one that the router reads as JSON, and no web page's."""
    given = {name.lower(): value for name, value in request.headers.items()}
    kind = given.get("content-type", _JSON).partition(";")[0].strip().lower()
    is_post = given.get(":method", "POST") == "POST" and bool(request.body)
    return is_post and kind == _JSON and "origin" not in given
