"""An engine that also answers OpenAI's bodies, from what it generates."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from http import HTTPStatus
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from lmi_backend.clients.openai import CHATS, COMPLETIONS, MODELS, refusal
from lmi_backend.clients.openai_bodies import (
    DONE,
    READ,
    Body,
    ChatWriter,
    CompletionWriter,
    Writer,
    adapter_of,
    read_chat,
    read_completion,
    usage_of,
)
from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.bodies import BodyBounds, check_body, check_sampling
from lmi_backend.engines.protocol import ChunkSink, DeltaSink, Engine
from lmi_backend.engines.streams import stream, take_all
from lmi_backend.engines.tokens import TemplateEngine
from lmi_backend.errors import HTTP_ERROR, HttpError, RequestError
from lmi_backend.generation import Delta, GenerateRequest, HttpChunk, HttpRequest
from lmi_backend.ipc.engine import Capabilities, EngineStats
from lmi_backend.names import DEFAULT_MODEL_NAME
from lmi_backend.tokenization import DECODE_PATH, TOKEN_PATHS, TokenIds
from lmi_backend.worker.continuation import ContinuedDeltas

_JSON: Final = {"content-type": "application/json"}
_EVENTS: Final = {"content-type": "text/event-stream; charset=utf-8"}


class OpenAiEngine(Engine):
    """Reads and writes OpenAI's bodies; `inner` generates."""

    def __init__(self, config: EngineConfig, inner: TemplateEngine) -> None:
        super().__init__(config)
        self._inner = inner
        self._adapters: dict[str, str] = {}
        self._names = (DEFAULT_MODEL_NAME, config.name) if config.name else (DEFAULT_MODEL_NAME,)

    async def prepare(self) -> None:
        await self._inner.prepare()

    async def start(self) -> Capabilities:
        return await self._inner.start()

    async def generate(self, request: GenerateRequest, sink: DeltaSink) -> None:
        check_sampling(request.sampling, self._config.structure_bounds)
        if request.continuation is not None:
            sink = ContinuedDeltas(sink, request.continuation)
        await self._inner.generate(request, sink)

    def stats(self) -> EngineStats:
        return self._inner.stats()

    async def check_health(self) -> None:
        await self._inner.check_health()

    async def close(self) -> None:
        await self._inner.close()

    async def load_adapter(self, name: str, folder: str, *, preload: bool, pin: bool) -> None:
        await self._inner.load_adapter(name, folder, preload=preload, pin=pin)
        self._adapters[name] = folder

    async def unload_adapter(self, name: str) -> None:
        await self._inner.unload_adapter(name)
        self._adapters.pop(name, None)

    async def respond(self, request: HttpRequest, sink: ChunkSink) -> None:
        """Answer a body; what is wrong with it is an answer too, with its HTTP status."""
        await take_all(self._answer_or_refuse(request), sink)

    async def _answer_or_refuse(self, request: HttpRequest) -> AsyncGenerator[HttpChunk, None]:
        try:
            async with aclosing(self._answer(request)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except (RequestError, HttpError) as error:
            yield refusal(error)

    async def _answer(self, request: HttpRequest) -> AsyncGenerator[HttpChunk, None]:
        if request.path == MODELS:
            yield HttpChunk(self._models(), is_last=True, headers=_JSON)
            return
        if request.path in TOKEN_PATHS:
            yield await self._inner.answer_tokens(request)
            return
        if request.path not in (CHATS, COMPLETIONS):
            message = (
                f"{request.path} is served by vLLM only; here: {CHATS}, {COMPLETIONS}, {MODELS}"
            )
            raise HttpError(HTTPStatus.NOT_FOUND, message)
        bounds = BodyBounds(
            self._config.structure_bounds,
            self._inner.max_model_len,
            self._inner.longest_token,
            reads=dict.fromkeys((CHATS, COMPLETIONS), READ),
        )
        value = _read(check_body(request.body, bounds, request.path).data)
        is_chat = request.path == CHATS
        body = read_chat(value) if is_chat else read_completion(value)
        requests = [each async for each in self._requests(body)]
        if request.continuation is not None:
            # One, which is a stream.
            requests = [replace(each, continuation=request.continuation) for each in requests]
        prompts = [await self._prompt_text(each) for each in requests] if body.echo else []
        writer = (ChatWriter if is_chat else CompletionWriter)(
            body.model or DEFAULT_MODEL_NAME,
            echo=[text for text in prompts for _ in range(body.n)],
            wants_logprobs=body.logprobs is not None,
        )
        write = _stream if body.stream else _whole
        generated = stream(self._inner, requests)
        if body.shows_prompt_only:
            generated = _without_tokens(generated)
        async with aclosing(generated) as deltas:
            async for chunk in write(deltas, body, writer, len(requests) * body.n):
                yield chunk

    async def _requests(self, body: Body) -> AsyncGenerator[GenerateRequest, None]:
        adapter = adapter_of(body, self._names, self._adapters)
        prompts = body.prompts
        if body.messages:
            prompts = (tuple(await self._inner.chat_prompt(body.messages, body.template_options)),)
        for prompt in prompts:
            sampling = body.sampling
            if not body.has_limit and isinstance(prompt, tuple):
                most = (self._inner.max_model_len or len(prompt) + 1024) - len(prompt)
                sampling = replace(sampling, max_tokens=max(1, most))
            yield GenerateRequest(
                prompt,
                sampling,
                stream=body.stream,
                adapter=adapter,
                n=body.n,
                logprobs=body.logprobs,
                prompt_logprobs=body.logprobs if body.echo else None,
            )

    async def _prompt_text(self, request: GenerateRequest) -> str:
        if isinstance(request.prompt, str):
            return request.prompt
        body = msgspec.json.encode(TokenIds(list(request.prompt)))
        answer = await self._inner.answer_tokens(HttpRequest(DECODE_PATH, body))
        # Ids that no token has are refused where they are generated from, by their own name.
        return msgspec.json.decode(answer.data, type=str) if answer.status < HTTP_ERROR else ""

    def _models(self) -> bytes:
        names = [*self._names, *self._adapters]
        card = {"object": "model", "created": int(time.time()), "owned_by": "lmi-backend"}
        return msgspec.json.encode(
            {"object": "list", "data": [{"id": name} | card for name in names]}
        )


def _read(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"is not JSON ({error})", field="the body") from error
    if not isinstance(value, dict):
        raise RequestError("is not a JSON object", field="the body")
    return value


async def _without_tokens(deltas: AsyncGenerator[Delta, None]) -> AsyncGenerator[Delta, None]:
    """Yield deltas as of a body that wants its prompt alone."""
    async with aclosing(deltas):
        async for delta in deltas:
            yield Delta(
                finish_reason="length" if delta.is_last else None,
                num_prompt_tokens=delta.num_prompt_tokens,
                index=delta.index,
                prompt_tokens=delta.prompt_tokens,
            )


async def _whole(
    deltas: AsyncGenerator[Delta, None], body: Body, writer: Writer, width: int
) -> AsyncGenerator[HttpChunk, None]:
    answers = [Delta(index=index) for index in range(width)]
    async for delta in deltas:
        answers[delta.index].merge(delta)
    prompt, generated = _counts(answers, body.n)
    data = writer.whole(answers, usage_of(prompt, generated))
    yield HttpChunk(
        data,
        is_last=True,
        headers=_JSON,
        num_tokens=generated,
        num_prompt_tokens=prompt,
    )


async def _stream(
    deltas: AsyncGenerator[Delta, None], body: Body, writer: Writer, width: int
) -> AsyncGenerator[HttpChunk, None]:
    answers = [Delta(index=index) for index in range(width)]
    open_answers, last = width, HttpChunk(headers=_EVENTS)
    async for delta in deltas:
        answer = answers[delta.index]
        answer.num_tokens += delta.num_tokens
        answer.num_prompt_tokens = delta.num_prompt_tokens
        last = HttpChunk(
            writer.event(delta), headers=_EVENTS, num_tokens=delta.num_tokens, ids=delta.ids
        )
        open_answers -= delta.is_last
        # The last of all leaves with the end: it tells how the request ended.
        if open_answers:
            yield last
            last = HttpChunk(headers=_EVENTS)
    prompt, generated = _counts(answers, body.n)
    usage = writer.usage_event(usage_of(prompt, generated)) if body.include_usage else b""
    last.merge(HttpChunk(usage + DONE, is_last=True, num_prompt_tokens=prompt))
    yield last


def _counts(answers: list[Delta], n: int) -> tuple[int, int]:
    prompt = sum(answer.num_prompt_tokens for answer in answers[::n])
    return prompt, sum(answer.num_tokens for answer in answers)
