"""Deltas of several prompts, as a generator and in a sink; and what an engine refuses by itself."""

import asyncio
from contextlib import aclosing

import pytest

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.echo import EchoEngine
from lmi_backend.engines.protocol import Engine, Sink
from lmi_backend.engines.streams import respond_stream, stream
from lmi_backend.errors import EngineError, RequestError
from lmi_backend.generation import GenerateRequest, HttpRequest, Sampling


def _echo(**passthrough: str) -> EchoEngine:
    return EchoEngine(EngineConfig(model="", passthrough=passthrough))


def _request(prompt: str, tokens: int = 2, n: int = 1) -> GenerateRequest:
    return GenerateRequest(prompt, Sampling(tokens), n=n)


async def test_answers_count_over_all_prompts() -> None:
    texts: dict[int, str] = {}
    async for delta in stream(_echo(), [_request("a", n=2), _request("b", n=2)]):
        texts[delta.index] = texts.get(delta.index, "") + delta.text
    assert texts == {0: "aa", 1: "aa", 2: "bb", 3: "bb"}


async def test_the_first_prompt_that_fails_ends_the_others() -> None:
    engine = _echo(fail_on="bad", token_seconds="0.001")
    with pytest.raises(EngineError, match="told to fail"):
        async for _ in stream(engine, [_request("good", 4000), _request("bad")]):
            pass
    assert engine.stats().running == 0


async def test_closing_the_generator_aborts() -> None:
    engine = _echo(token_seconds="0.001")
    async with aclosing(stream(engine, [_request("a b", 4000)])) as deltas:
        assert (await anext(deltas)).text == "a"
        assert engine.stats().running == 1
    assert engine.stats().running == 0


async def test_what_was_generated_comes_before_the_failure() -> None:
    class Breaking(Engine):
        async def generate(self, request: GenerateRequest, sink: Sink) -> None:
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


async def test_an_engine_refuses_what_it_does_not_implement() -> None:
    engine = Engine(EngineConfig(model=""))
    with pytest.raises(RequestError, match="an OpenAI body, which this model's engine"):
        await anext(respond_stream(engine, HttpRequest("/v1/models", b"")))
    with pytest.raises(RequestError, match="cannot be loaded by this model's engine"):
        await engine.load_adapter("a", "/a", preload=True, pin=False)
    with pytest.raises(RequestError, match="cannot be loaded by this model's engine"):
        await engine.unload_adapter("a")
