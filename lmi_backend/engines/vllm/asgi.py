"""Call an ASGI application without a server: a request in, chunks of its answer out."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.errors import EngineError
from lmi_backend.generation import HttpChunk, HttpRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    Message = MutableMapping[str, Any]
    Application = Callable[..., Awaitable[None]]

_log = logging.getLogger(__name__)

# Chunks the application may still send when its client has gone.
_SPARE: Final = 16
# Time it has to notice that its client has gone.
_LEAVE_SECONDS: Final = 1.0


async def respond(
    application: Application,
    request: HttpRequest,
    take: Callable[[HttpChunk], None],
    begin: Callable[[HttpChunk], None] = lambda head: None,
) -> None:
    """Hand over the answer as it comes; each chunk has status and headers.

    Args:
        begin: called with status and headers alone, before any chunk.

    Cancelling tells the application that its client has gone, and waits until it returns.

    Raises:
        EngineError: the application returned without a complete answer.
        Exception: what the application raised before that.
    """
    answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    has_gone = asyncio.Event()
    spare = iter(range(_SPARE))
    head = HttpChunk()

    async def send(message: Message) -> None:
        nonlocal head
        if has_gone.is_set():
            # Dropped, without a wait. An application streams from a generator: to raise or be
            # cancelled here would leave that open, and the engine would generate to the end. It
            # shall be cancelled where it waits for the engine.
            if next(spare, None) is None:
                raise OSError("the client has gone")
            return
        if message["type"] == "http.response.start":
            head = HttpChunk(status=message["status"], headers=_headers(message))
            begin(head)
            return
        is_last = not message.get("more_body", False)
        data = message.get("body", b"")
        if data or is_last:
            take(HttpChunk(data, is_last=is_last, status=head.status, headers=head.headers))
        if is_last and not answered.done():
            answered.set_result(None)
        # One that never waits by itself must not keep others from their turn.
        await asyncio.sleep(0)

    task = asyncio.create_task(_run(application, request, send, has_gone))
    await _until_answered(task, answered, has_gone)


async def _until_answered(
    task: asyncio.Task[None], answered: asyncio.Future[None], has_gone: asyncio.Event
) -> None:
    """Wait for the end of an answer; then the application has to return.

    Raises:
        Exception: it returned before.
    """
    try:
        await asyncio.wait({task, answered}, return_when=asyncio.FIRST_COMPLETED)
        if not answered.done():
            raise _why(task)
    finally:
        has_gone.set()
        await _end(task)


async def _run(
    application: Application,
    request: HttpRequest,
    send: Callable[[Message], Awaitable[None]],
    has_gone: asyncio.Event,
) -> None:
    bodies = iter([request.body])

    async def receive() -> Message:
        for body in bodies:
            return {"type": "http.request", "body": body, "more_body": False}
        await has_gone.wait()
        return {"type": "http.disconnect"}

    await application(scope_of(request), receive, send)


def _why(task: asyncio.Task[None]) -> BaseException:
    """Return why an application returned before its answer was complete."""
    error = None if task.cancelled() else task.exception()
    return error or EngineError("the engine's server finished without an answer")


async def _end(task: asyncio.Task[None]) -> None:
    """Let the application come to its end, and make it."""
    try:
        await asyncio.wait({task}, timeout=_LEAVE_SECONDS)
    finally:
        task.cancel()
    (error,) = await asyncio.gather(task, return_exceptions=True)
    if isinstance(error, Exception) and not isinstance(error, OSError):
        _log.debug("the application raised after its answer: %s", error)


def scope_of(request: HttpRequest) -> dict[str, Any]:
    """Return the scope of a request."""
    path, _, query = request.path.partition("?")
    given = {name.lower(): value for name, value in request.headers.items()}
    headers = {"content-type": "application/json"} | given
    # HTTP/2's name for the method, which a gateway may pass on.
    method = headers.pop(":method", "POST" if request.body else "GET")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": None,
        "server": None,
    }


def _headers(message: Message) -> dict[str, str]:
    return {name.decode().lower(): value.decode() for name, value in message.get("headers", ())}
