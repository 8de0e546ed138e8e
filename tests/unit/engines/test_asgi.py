"""An ASGI application is called without a server."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from lmi_backend.engines.vllm.asgi import respond
from lmi_backend.generation import Call, Chunk

CALL = Call("/v1/x?a=1", b"body", {"x-request-id": "7"})


async def start(send: Any, status: int = 200) -> None:
    headers = [(b"Content-Type", b"text/plain")]
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def part(send: Any, data: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})


async def answer(application: Any, call: Call = CALL) -> list[Chunk]:
    async with aclosing(respond(application, call)) as chunks:
        return [chunk async for chunk in chunks]


async def test_the_application_sees_the_request() -> None:
    seen = {}

    async def application(scope: Any, receive: Any, send: Any) -> None:
        seen.update(scope, body=(await receive())["body"])
        await start(send, 404)
        await part(send, b"no", more=False)

    (chunk,) = await answer(application)
    assert (chunk.data, chunk.is_last, chunk.status) == (b"no", True, 404)
    assert chunk.headers == {"content-type": "text/plain"}
    assert (seen["method"], seen["path"], seen["query_string"]) == ("POST", "/v1/x", b"a=1")
    assert seen["body"] == b"body"
    assert set(seen["headers"]) == {(b"content-type", b"application/json"), (b"x-request-id", b"7")}


async def test_a_call_without_a_body_is_a_get_unless_it_says_otherwise() -> None:
    methods = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        methods.append(scope["method"])
        await start(send)
        await part(send, b"", more=False)

    await answer(application, Call("/", b""))
    await answer(application, Call("/", b"{}", {":method": "DELETE"}))
    assert methods == ["GET", "DELETE"]


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


async def test_who_stops_reading_is_a_client_that_has_gone() -> None:
    ended = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await start(send)
        await part(send, b"one")
        ended.append((await receive())["type"])

    async with aclosing(respond(application, CALL)) as chunks:
        await anext(chunks)
    assert ended == ["http.disconnect"]


async def test_an_application_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmi_backend.engines.vllm.asgi._LEAVE_SECONDS", 0.01)
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


async def test_a_slow_reader_slows_the_application() -> None:
    sent = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await start(send)
        for number in range(1000):
            await part(send, b"x")
            sent.append(number)
        await part(send, b"", more=False)

    async with aclosing(respond(application, CALL)) as chunks:
        await anext(chunks)
        await asyncio.sleep(0)
        assert len(sent) < 50
        assert sum(len(chunk.data) for chunk in [chunk async for chunk in chunks]) == 999


async def test_what_it_raises_before_it_answers_is_raised() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        await answer(application)


async def test_what_it_raises_after_its_answer_changes_nothing() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await start(send, 500)
        await part(send, b"sorry", more=False)
        raise KeyError("lost")

    (chunk,) = await answer(application)
    assert (chunk.status, chunk.data) == (500, b"sorry")
