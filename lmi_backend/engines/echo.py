"""An engine without a model: it answers with the prompt, over and over.

For tests and dry runs of everything around an engine. A token is the text between two blanks, with
the blank before it. Arguments, all as `option.*` keys:

- `token_seconds`: pause before each token. Default 0.
- `max_model_len`: longest prompt plus answer, in tokens. Default 4096.
- `max_running`: requests it works on at once. Default 256.
- `start_seconds`: pause before it is ready. Default 0.
- `die_on`: a prompt on which the engine dies. Default none.
- `fail_on`: a prompt on which this one request fails. Default none.
- `openai`: whether OpenAI's bodies of chat and completion get OpenAI's answers, with the prompt or
  the last message as text. Default false: bodies are echoed as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import time
import zlib
from collections.abc import AsyncGenerator
from typing import Annotated, Final

import msgspec

from lmi_backend import __version__
from lmi_backend.clients.openai import CHATS, COMPLETIONS
from lmi_backend.clients.openai_bodies import DONE
from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.protocol import ChunkSink, DeltaSink, Engine, Rank
from lmi_backend.engines.streams import stream, take_all
from lmi_backend.errors import EngineDeadError, EngineError, OptionError, RequestError
from lmi_backend.generation import (
    Continuation,
    Delta,
    GenerateRequest,
    HttpChunk,
    HttpRequest,
    Sampling,
    Token,
)
from lmi_backend.ipc.engine import Capabilities, EngineStats
from lmi_backend.json_text import UNREADABLE
from lmi_backend.tokenization import ID_BYTES, context_length, pack

_WORD: Final = re.compile(r"\s*\S+|\s+")
"""A token."""


def first_words(text: str, most: int) -> list[str]:
    """Return the first tokens of a text, which may be of any length."""
    return [match[0] for match in itertools.islice(_WORD.finditer(text), most)]


_MOST: Final = 1 << 16
"""Tokens of an answer to which no limit is given."""
_Count = Annotated[int, msgspec.Meta(ge=1)]


class _Message(msgspec.Struct):
    content: str = ""


class OpenAiBody(msgspec.Struct):
    """A body of chat or completion, as far as an echo looks at it."""

    model: str = ""
    messages: list[_Message] = []
    prompt: str = ""
    stream: bool = False
    max_tokens: _Count | None = None
    max_completion_tokens: _Count | None = None
    created: int = msgspec.field(default_factory=lambda: int(time.time()))

    def request(self) -> GenerateRequest:
        """Return the prompt, or the last message, to be said once where no limit is given."""
        prompt = self.messages[-1].content if self.messages else self.prompt
        most = self.max_tokens or self.max_completion_tokens or len(first_words(prompt, _MOST))
        return GenerateRequest(prompt, Sampling(max_tokens=most))

    def event(self, request_id: str, delta: Delta, count: int) -> bytes:
        return b"data: " + self.answer(request_id, delta, count, is_chunk=True) + b"\n\n"

    def answer(self, request_id: str, delta: Delta, count: int, *, is_chunk: bool = False) -> bytes:
        message = {"role": "assistant", "content": delta.text}
        choice: dict[str, object] = {"index": 0, "finish_reason": delta.finish_reason}
        choice |= {"delta" if is_chunk else "message": message} if self.messages else {}
        choice |= {} if self.messages else {"text": delta.text}
        kind = "chat.completion" if self.messages else "text_completion"
        usage = {
            "prompt_tokens": delta.num_prompt_tokens,
            "completion_tokens": count,
            "total_tokens": delta.num_prompt_tokens + count,
        }
        return msgspec.json.encode(
            {
                "id": request_id,
                "object": kind + ".chunk" * (is_chunk and bool(self.messages)),
                "created": self.created,
                "model": self.model,
                "choices": [choice],
                "usage": usage,
            }
        )


_LOGPROB = -0.5
_LONGEST_WORD = 1024
"""Mean characters between two blanks of a prompt that is cut into tokens."""
_JSON = "application/json"


class EchoSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    token_seconds: float = 0.0
    start_seconds: float = 0.0
    max_model_len: int = 4096
    max_running: int = 256
    die_on: str = ""
    fail_on: str = ""
    openai: bool = False


class EchoEngine(Engine):
    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._settings = msgspec.structs.replace(_read(config.passthrough), **config.arguments)
        self._slots = asyncio.Semaphore(self._settings.max_running)
        self._waiting = 0
        self._running = 0
        self._is_dead = False
        self._adapters: dict[str, str] = {}

    async def start(self) -> Capabilities:
        await asyncio.sleep(self._settings.start_seconds)
        return Capabilities("echo", __version__, self._settings.max_model_len, _LONGEST_WORD)

    async def generate(self, request: GenerateRequest, sink: DeltaSink) -> None:
        await self.check_health()
        tokens = self._tokens(request)
        self._check(request, len(tokens))
        max_tokens = min(request.sampling.max_tokens, self._settings.max_model_len - len(tokens))
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        self._running += 1
        try:
            for index in range(request.n):
                async for delta in self._answer(request, tokens, max_tokens):
                    delta.index = index
                    sink.take(delta)
        finally:
            self._running -= 1
            self._slots.release()

    def _tokens(self, request: GenerateRequest) -> list[str]:
        """Return the tokens of the prompt, no more than fit; one given as ids is spelled `<id>`."""
        if isinstance(request.prompt, str):
            most = self._settings.max_model_len * _LONGEST_WORD
            if len(request.prompt) > most:
                problem = f"has {len(request.prompt)} characters"
                raise RequestError(problem, field="prompt", accepted=f"at most {most}")
            return first_words(request.prompt, self._settings.max_model_len)
        return [f"<{number}>" for number in request.prompt]

    def _check(self, request: GenerateRequest, num_prompt_tokens: int) -> None:
        longest = self._settings.max_model_len
        if num_prompt_tokens >= longest:
            problem = f"has {longest} tokens or more"
            raise RequestError(
                problem, field="prompt", accepted=f"fewer than {longest}. {context_length(longest)}"
            )
        if request.adapter not in ("", *self._adapters):
            names = ", ".join(self._adapters) or "none is loaded"
            raise RequestError("is unknown", field="adapter", value=request.adapter, accepted=names)
        if self._settings.fail_on and request.prompt == self._settings.fail_on:
            raise EngineError("the engine was told to fail on this prompt")

    async def _answer(
        self, request: GenerateRequest, tokens: list[str], max_tokens: int
    ) -> AsyncGenerator[Delta, None]:
        total = Delta(num_prompt_tokens=len(tokens))
        if request.prompt_logprobs is not None:
            total.prompt_tokens = tuple(_token(word) for word in tokens)
        has = _num_given(request.continuation)
        words = itertools.islice(itertools.cycle(tokens), has, max_tokens)
        for count, word in enumerate(words, start=has + 1):
            await asyncio.sleep(self._settings.token_seconds)
            if request.prompt == self._settings.die_on:
                self._is_dead = True
            await self.check_health()
            delta = _delta(request, word, count, len(tokens))
            if self._config.sends_ids and request.stream and request.n == 1:
                delta.ids = pack([_token_id(word)])
            if word.strip() in request.sampling.stop:
                delta.text = word if request.sampling.include_stop else ""
                delta.finish_reason, delta.stop_reason = "stop", word.strip()
            elif count == max_tokens:
                delta.finish_reason = "length"
            total.merge(delta)
            if request.stream:
                yield total
                total = Delta()
            if delta.finish_reason:
                break
        if not request.stream:
            yield total

    async def respond(self, request: HttpRequest, sink: ChunkSink) -> None:
        """Answer a body with itself, line by line."""
        await self.check_health()
        is_read = self._settings.openai and request.path in (CHATS, COMPLETIONS)
        await take_all(self._read(request) if is_read else self._lines(request), sink)

    async def _lines(self, request: HttpRequest) -> AsyncGenerator[HttpChunk, None]:
        *lines, last = request.body.splitlines(keepends=True) or [b""]
        headers = {"content-type": _JSON, "path": request.path}
        for line in lines:
            yield HttpChunk(line, headers=headers)
            await asyncio.sleep(self._settings.token_seconds)
        yield HttpChunk(last, is_last=True, headers=headers)

    async def _read(self, call: HttpRequest) -> AsyncGenerator[HttpChunk, None]:
        try:
            body = msgspec.json.decode(call.body, type=OpenAiBody)
        except (*UNREADABLE, ValueError) as error:
            refusal = {"error": {"message": str(error), "type": "BadRequestError", "code": 400}}
            yield HttpChunk(msgspec.json.encode(refusal), True, 400, {"content-type": _JSON})
            return
        request = msgspec.structs.replace(body.request(), continuation=call.continuation)
        request_id, text, count = call.headers.get("x-request-id", "echo"), "", 0
        kind = {"content-type": "text/event-stream" if body.stream else _JSON}
        # What the client has is written again, and dropped where it is sent.
        words = self._tokens(request)
        for word in itertools.islice(itertools.cycle(words), _num_given(call.continuation)):
            count += 1
            data = body.event(request_id, Delta(word, num_prompt_tokens=len(words)), count)
            yield HttpChunk(data, headers=kind)
        # An empty prompt is an empty answer.
        delta = Delta(num_prompt_tokens=len(words), finish_reason="stop")
        async with contextlib.aclosing(stream(self, [request])) as deltas:
            async for delta in deltas:
                text += delta.text
                count += delta.num_tokens
                if body.stream:
                    data = body.event(request_id, delta, count)
                    yield HttpChunk(
                        data, headers=kind, num_tokens=delta.num_tokens,
                        num_prompt_tokens=delta.num_prompt_tokens, ids=delta.ids,
                    )  # fmt: skip
        delta.text = text
        data = DONE if body.stream else body.answer(request_id, delta, count)
        yield HttpChunk(data, is_last=True, headers=kind, num_prompt_tokens=delta.num_prompt_tokens)

    async def load_adapter(self, name: str, folder: str, *, preload: bool, pin: bool) -> None:
        # An adapter changes nothing here.
        self._adapters[name] = folder

    async def unload_adapter(self, name: str) -> None:
        del self._adapters[name]

    def stats(self) -> EngineStats:
        return EngineStats(running=self._running, waiting=self._waiting)

    async def check_health(self) -> None:
        if self._is_dead:
            raise EngineDeadError("the echo engine was told to die")


class EchoFollower(Rank):
    async def start(self) -> Capabilities:
        return Capabilities("follower", __version__, 0)


def _delta(request: GenerateRequest, word: str, count: int, num_prompt_tokens: int) -> Delta:
    delta = Delta(text=word, num_tokens=1, num_prompt_tokens=num_prompt_tokens)
    if request.logprobs is not None:
        delta.tokens = (_token(word, top=request.logprobs),)
        delta.cumulative_logprob = _LOGPROB * count
    return delta


def _token(word: str, top: int = 0) -> Token:
    """Return a token whose id is a checksum of its text."""
    number = _token_id(word)
    return Token(
        number, word, _LOGPROB, rank=1, top=(Token(number, word, _LOGPROB, 1),) * min(top, 1)
    )


def _token_id(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "replace")) % 32_000


def _num_given(continuation: Continuation | None) -> int:
    return len(continuation.ids) // ID_BYTES if continuation else 0


def _read(texts: dict[str, str]) -> EchoSettings:
    settings = EchoSettings()
    for name, text in texts.items():
        try:
            read = msgspec.convert({name: text}, EchoSettings, strict=False)
        except msgspec.ValidationError as error:
            accepted = ", ".join(EchoSettings.__struct_fields__)
            raise OptionError(
                f"is refused by the echo engine: {error}",
                option=f"option.{name}",
                value=text,
                origin="echo",
                accepted=accepted,
            ) from error
        settings = msgspec.structs.replace(settings, **{name: getattr(read, name)})
    return settings
