"""Call the endpoints of vLLM's server without its middleware, its router and its response.

These take more time than all else that is done once for a short answer, and a share of each event.
A body that cannot be read, and what no endpoint takes, is left to them.
"""

from __future__ import annotations

import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.clients.openai.paths import CHATS, COMPLETIONS
from lmi_backend.engines.bodies import read_body
from lmi_backend.engines.vllm.asgi import scope_of
from lmi_backend.engines.vllm.inside import fast_paths, parsed_stream, server_compat
from lmi_backend.engines.vllm.inside.answer import note_parsed
from lmi_backend.engines.vllm.inside.chat_lessons import lessons
from lmi_backend.generation import HttpChunk

if TYPE_CHECKING:
    from collections.abc import Collection

    from lmi_backend.engines.vllm.inside.answer import BodyAnswer
    from lmi_backend.generation import HttpRequest
    from lmi_backend.outline import Outline

_log = logging.getLogger(__name__)

_JSON: Final = "application/json"


_WATCHED: Final = ("direct_calls", "plain_stream", parsed_stream.NAME)
"""Fast paths by which an answer is not seen by all of vLLM's server."""


def _leave_out(watching: Collection[str], options: Collection[str]) -> None:
    chosen = [name for name in watching if name in options]
    for fast_path in _WATCHED:
        if chosen:
            fast_paths.leave_out(fast_path, f"{chosen[0]} has vLLM's server look at each answer")
        else:
            came = ", ".join(watching)
            fast_paths.turn_off(fast_path, "an application that looks at no answer", came)


class DirectCalls:
    """The calls of one application.

    Args:
        app: vLLM's, with its state.
        options: of its server, that the user gave.
    """

    def __init__(self, app: Any, options: Collection[str]) -> None:
        self._app = app
        self._endpoints: dict[str, Any] = {}
        self.plain_paths: set[str] = set()
        """Paths whose streams may be plain."""
        self.parsed_paths: set[str] = set()
        """Paths whose texts a parser of vLLM reads first."""
        if watching := server_compat.watchers(app):
            _leave_out(watching, options)
            return
        if fast_paths.probe(
            "direct_calls", "endpoints that a body and a request answer", self._find
        ):
            paths = ", ".join(sorted(self._endpoints))
            _log.info("vLLM's code for %s is called without its HTTP server", paths)
        else:
            self._endpoints = {}
            fast_paths.turn_off("plain_stream", "direct_calls", "they are off")
        fast_paths.probe("plain_stream", "a chat server that names its parsers", self._find_plain)
        fast_paths.probe(parsed_stream.NAME, parsed_stream.EXPECTED, self._find_parsed)

    def _find(self) -> None:
        self._endpoints = server_compat.endpoints(self._app)
        wanted = {CHATS, COMPLETIONS}
        if opaque := {
            type(each).__name__ for each in self._app.routes if not hasattr(each, "path")
        }:
            raise LookupError(f"routes have no path: {', '.join(sorted(opaque))}")
        paths = {each.path for each in self._app.routes}
        if lacking := (wanted & paths) - self._endpoints.keys():
            raise LookupError(f"something else is around {', '.join(sorted(lacking))}")

    def _find_plain(self) -> None:
        self.plain_paths = server_compat.plain_paths(self._app) & self._endpoints.keys()

    def _find_parsed(self) -> None:
        if (server := server_compat.parsed_chats(self._app)) is not None:
            parsed_stream.watch(server, note_parsed)
            self.parsed_paths = {CHATS} & self._endpoints.keys()

    async def respond(self, request: HttpRequest, answer: BodyAnswer, outlined: Outline) -> bool:
        """Answer a body; False if the application must.

        Args:
            request: the body.
            answer: takes the answer.
            outlined: the outline of the body.
        """
        found = self._endpoints.get(request.path) if fast_paths.is_on("direct_calls") else None
        if found is None or not _is_json_body(request):
            return False
        endpoint, read = found
        try:
            # As the router reads a body.
            body = read(await read_body(request.body, outlined))
        except Exception as error:  # noqa: BLE001  the application will say it in its own form
            _log.debug("%s: %s", request.path, error)
            return False
        asked = server_compat.http_request(scope_of(request), self._app)
        try:
            response = await endpoint(request=body, raw_request=asked)
        except Exception as error:
            if (handler := self._handler(error)) is None:
                raise
            response = await handler(asked, error)
        if not _is_response(response):
            # Nobody has seen any of it.
            fast_paths.turn_off("direct_calls", "endpoints that give a response", _kind(response))
            fast_paths.turn_off("plain_stream", "direct_calls", "they are off")
            return False
        is_chat = request.path == CHATS
        # A parser may tell nothing of the first text.
        is_plain_chat = answer.may_be_plain and is_chat and not answer.is_parsed
        answer.buffers_role = is_chat and not is_plain_chat
        await _send(response, answer, has_role=is_plain_chat)
        if (later := getattr(response, "background", None)) is not None:
            await later()
        return True

    def _handler(self, error: Exception) -> Any:
        """Return what the application answers an error with, found as its router finds it."""
        handlers = self._app.exception_handlers
        return next((handlers[each] for each in type(error).__mro__ if each in handlers), None)


def _is_response(found: Any) -> bool:
    """Tell whether what an endpoint gives is a response, and nothing to make one of."""
    has_head = hasattr(found, "status_code") and hasattr(found, "headers")
    if not has_head or server_compat.own_methods(type(found)):
        return False
    return hasattr(found, "body_iterator") or isinstance(found.body, bytes)


def _kind(found: Any) -> str:
    return f"it gives a {type(found).__name__}"


async def _send(response: Any, answer: BodyAnswer, *, has_role: bool) -> None:
    """Hand over a response of Starlette's.

    Args:
        has_role: whether its first event tells a chat's role, with the first text in the same turn.
    """
    head = HttpChunk(status=response.status_code, headers=dict(response.headers))
    if (lesson := lessons.get()) is not None:
        lesson.note_head(head.status, head.headers)
    if not hasattr(response, "body_iterator"):
        head.data, head.is_last = response.body, True
        answer.take(head)
        return
    # What comes in one turn is one chunk: the role, and all events after the last token.
    buffered = b""
    async with aclosing(response.body_iterator) as events:
        async for event in events:
            data = event.encode() if isinstance(event, str) else bytes(event)
            buffered += data
            if lesson is not None:
                lesson.note_event(data)
            if not has_role and not answer.has_template:
                answer.take(HttpChunk(buffered, status=head.status, headers=head.headers))
                answer.last_data, buffered = data, b""
            has_role = False
    answer.take(HttpChunk(buffered, is_last=True, status=head.status, headers=head.headers))


def _is_json_body(request: HttpRequest) -> bool:
    """Tell whether it is one that the router reads as JSON, and no web page's."""
    given = {name.lower(): value for name, value in request.headers.items()}
    kind = given.get("content-type", _JSON).partition(";")[0].strip().lower()
    is_post = given.get(":method", "POST") == "POST" and bool(request.body)
    return is_post and kind == _JSON and "origin" not in given
