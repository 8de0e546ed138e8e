"""Deltas of several prompts, as a generator and in a sink; and what an engine refuses by itself."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.echo import EchoEngine
from lmi_backend.engines.protocol import DeltaSink, Engine
from lmi_backend.engines.streams import respond_stream, stream, take_all
from lmi_backend.errors import EngineError, HttpError, RequestError
from lmi_backend.generation import GenerateRequest, HttpChunk, HttpRequest, Sampling


def _echo(**passthrough: str) -> EchoEngine:
    return EchoEngine(EngineConfig(model="", passthrough=passthrough))


def _request(prompt: str, tokens: int = 2, n: int = 1) -> GenerateRequest:
    return GenerateRequest(prompt, Sampling(tokens), n=n)


async def test_answers_count_over_all_prompts() -> None:
    texts: dict[int, str] = {}
    async for delta in stream(_echo(), [_request("a", n=2), _request("b", n=2)]):
        texts[delta.index] = texts.get(delta.index, "") + delta.text
    assert texts == {0: "aa", 1: "aa", 2: "bb", 3: "bb"}


async def test_closing_the_generator_aborts() -> None:
    engine = _echo(token_seconds="0.001")
    async with aclosing(stream(engine, [_request("a b", 4000)])) as deltas:
        assert (await anext(deltas)).text == "a"
        assert engine.stats().running == 1
    assert engine.stats().running == 0


async def test_what_was_generated_comes_before_the_failure() -> None:
    class Breaking(Engine):
        async def generate(self, request: GenerateRequest, sink: DeltaSink) -> None:
            await _echo().generate(request, sink)
            message = "it broke"
            raise EngineError(message)

    texts: list[str] = []

    async def read() -> None:
        async for delta in stream(Breaking(EngineConfig(model="")), [_request("a")]):
            texts.append(delta.text)

    with pytest.raises(EngineError, match="it broke"):
        await read()
    assert texts == ["a", "a"]
    assert len(asyncio.all_tasks()) == 1


class _Taken:
    def __init__(self) -> None:
        self.data: list[bytes] = []

    def take(self, chunk: HttpChunk) -> None:
        self.data.append(chunk.data)

    async def drain(self) -> None:
        """Take more at any time."""


async def _of(*chunks: HttpChunk) -> AsyncGenerator[HttpChunk, None]:
    for chunk in chunks:
        yield chunk


async def test_an_error_in_the_middle_of_a_body_is_none_of_its_parts() -> None:
    """Its client would take both for the answer."""
    sink = _Taken()
    parts = HttpChunk(b"a"), HttpChunk(b"b"), HttpChunk(b"why", is_last=True, status=507)
    with pytest.raises(HttpError, match="why") as raised:
        await take_all(_of(*parts), sink)  # type: ignore[arg-type]
    assert (raised.value.status, sink.data) == (507, [b"a", b"b"])
    whole = _Taken()
    refusal = HttpChunk(b"no", status=404), HttpChunk(b"ne", is_last=True, status=404)
    await take_all(_of(*refusal), whole)  # type: ignore[arg-type]
    assert whole.data == [b"no", b"ne"]


async def test_an_engine_refuses_what_it_does_not_implement() -> None:
    engine = Engine(EngineConfig(model=""))
    with pytest.raises(RequestError, match="an OpenAI body, which this model's engine"):
        await anext(respond_stream(engine.respond, HttpRequest("/v1/models", b"")))
    with pytest.raises(RequestError, match="cannot be loaded by this model's engine"):
        await engine.load_adapter("a", "/a", preload=True, pin=False)
    with pytest.raises(RequestError, match="cannot be loaded by this model's engine"):
        await engine.unload_adapter("a")
