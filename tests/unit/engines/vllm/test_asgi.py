"""An ASGI application is called without a server."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from lmi_backend.engines.protocol import ChunkSink
from lmi_backend.engines.streams import respond_stream
from lmi_backend.engines.vllm import http_app
from lmi_backend.errors import EngineError
from lmi_backend.generation import HttpChunk, HttpRequest
from tests.support.run.waiting import turns

CALL = HttpRequest("/v1/x?a=1", b"body", {"x-request-id": "7"})


def respond(application: Any, call: HttpRequest) -> AsyncGenerator[HttpChunk, None]:
    async def answer(request: HttpRequest, sink: ChunkSink) -> None:
        await http_app.respond(application, request, sink.take)

    return respond_stream(answer, call)


async def start(send: Any, status: int = 200) -> None:
    headers = [(b"Content-Type", b"text/plain")]
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def part(send: Any, data: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})


class Application:
    """Sends parts, of which "" is the end, or raises an error; notes what it was called with."""

    def __init__(self, *steps: bytes | BaseException, status: int = 200) -> None:
        self._steps, self._status = steps, status
        self.seen: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.seen.append(scope | {"body": (await receive())["body"]})
        for place, step in enumerate(self._steps):
            if isinstance(step, BaseException):
                raise step
            if not place:
                await start(send, self._status)
            await part(send, step, more=step != b"")


async def answer(application: Any, call: HttpRequest = CALL) -> list[HttpChunk]:
    async with aclosing(respond(application, call)) as chunks:
        return [chunk async for chunk in chunks]


async def test_the_application_sees_the_request() -> None:
    application = Application(b"", status=404)
    (chunk,) = await answer(application)
    assert (chunk.data, chunk.is_last, chunk.status) == (b"", True, 404)
    assert chunk.headers == {"content-type": "text/plain"}
    (seen,) = application.seen
    assert (seen["method"], seen["path"], seen["query_string"]) == ("POST", "/v1/x", b"a=1")
    assert seen["body"] == b"body"
    assert set(seen["headers"]) == {(b"content-type", b"application/json"), (b"x-request-id", b"7")}


async def test_headers_say_the_method_and_are_in_lower_case() -> None:
    application = Application(b"")
    for call in (
        HttpRequest("/", b""),
        HttpRequest("/", b"{}", {":method": "DELETE", "Content-Type": "text/plain", "X-Id": "A"}),
    ):
        await answer(application, call)
    assert [each["method"] for each in application.seen] == ["GET", "DELETE"]
    assert application.seen[1]["headers"] == [(b"content-type", b"text/plain"), (b"x-id", b"A")]


async def test_parts_come_as_they_are_sent() -> None:
    may_go_on = asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await start(send)
        await part(send, b"one")
        await may_go_on.wait()
        await part(send, b"two")
        await part(send, b"", more=False)

    async with aclosing(respond(application, CALL)) as chunks:
        first = await anext(chunks)
        may_go_on.set()
        rest = [chunk async for chunk in chunks]
    assert (first.data, first.is_last) == (b"one", False)
    assert [(chunk.data, chunk.is_last) for chunk in rest] == [(b"two", False), (b"", True)]


async def test_who_reads_slowly_and_leaves_closes_what_the_application_streams() -> None:
    """Starlette's way: one task listens, one sends what a generator gives; vLLM aborts in it."""
    ended = []
    has_tokens = asyncio.Event()
    has_tokens.set()

    async def tokens() -> Any:
        try:
            while True:
                await has_tokens.wait()
                yield b"x"
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        finally:
            ended.append("closed")

    # Kept, so that no garbage collection closes it in the application's stead.
    stream = tokens()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        async def forward() -> None:
            await start(send)
            async for data in stream:
                await part(send, data)

        await receive()
        forwarding = asyncio.create_task(forward())
        await receive()
        forwarding.cancel()
        await asyncio.gather(forwarding, return_exceptions=True)

    async with aclosing(respond(application, CALL)) as chunks:
        await anext(chunks)
        for _ in range(100):
            await asyncio.sleep(0)
        # The application waits for its reader now, and will next wait for a token.
        has_tokens.clear()
    assert ended == ["cancelled", "closed"]


async def test_an_application_that_sends_on_to_nobody_is_stopped() -> None:
    sent = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await start(send)
        while True:
            await part(send, b"x")
            sent.append(1)

    async with aclosing(respond(application, CALL)) as chunks:
        await anext(chunks)
    assert len(sent) < 50


async def test_closing_waits_for_the_application() -> None:
    before, ended = asyncio.all_tasks(), list[str]()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await start(send)
        await part(send, b"one")
        ended.append((await receive())["type"])
        await turns()

    async with aclosing(respond(application, CALL)) as chunks:
        await anext(chunks)
    assert (asyncio.all_tasks(), ended) == (before, ["http.disconnect"])


async def test_an_application_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmi_backend.engines.vllm.http_app._LEAVE_SECONDS", 0.01)
    ended = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await start(send)
        await part(send, b"one")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async with aclosing(respond(application, CALL)) as chunks:
        await anext(chunks)
    assert ended == [True]


@pytest.mark.parametrize("parts", [(), (b"one",)])
async def test_what_it_raises_before_or_amid_its_answer_is_raised(parts: tuple[bytes, ...]) -> None:
    async with aclosing(respond(Application(*parts, KeyError("lost")), CALL)) as chunks:
        assert [(await anext(chunks)).data for _ in parts] == [*parts]
        with pytest.raises(KeyError, match="lost"):
            await anext(chunks)


@pytest.mark.parametrize("end", [(), (asyncio.CancelledError(),)], ids=["returns", "is cancelled"])
async def test_an_application_without_the_end_of_an_answer_is_an_error(
    end: tuple[BaseException, ...],
) -> None:
    with pytest.raises(EngineError, match="without an answer"):
        await answer(Application(b"one", *end))


async def test_what_it_raises_after_its_answer_changes_nothing() -> None:
    (chunk,) = await answer(Application(b"", KeyError("lost"), status=500))
    assert (chunk.status, chunk.is_last) == (500, True)
