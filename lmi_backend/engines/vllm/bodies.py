"""Bodies of vLLM's server: their kinds, their answers, and the engine that it calls for them."""

from __future__ import annotations

import asyncio
import contextvars
from contextlib import aclosing
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lmi_backend.clients.anthropic import EVENT, with_own_type
from lmi_backend.clients.spec import RETRYABLE, message_of
from lmi_backend.engines.vllm import compat, images, names, requests
from lmi_backend.engines.vllm.requests import length, refusal, unfit, unwrapped
from lmi_backend.engines.vllm.resume import ReplayedAnswer, current_replay, resume_strategy_of
from lmi_backend.engines.vllm.vllm_server import EchoedPrompt
from lmi_backend.errors import HttpError, RequestError
from lmi_backend.generation import HttpChunk
from lmi_backend.structures import StructureBounds, check_structures
from lmi_backend.tokenization import pack

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping

    from lmi_backend.engines.protocol import ChunkSink, DeltaSink
    from lmi_backend.engines.vllm.grammars import GrammarTrials
    from lmi_backend.engines.vllm.layouts import StreamLayouts
    from lmi_backend.engines.vllm.lora import LoraAdapters
    from lmi_backend.engines.vllm.requests import OutputReader
    from lmi_backend.generation import Continuation

# Kinds: bodies that differ in their prompt alone, and what vLLM's server makes of all of them.

LIMITS: Final = ("max_completion_tokens", "max_tokens")
"""Members that limit an answer; the first counts."""
NULL: Final = b"null"
_FREE: Final = frozenset({"messages", "prompt", "user"})
"""Members that may differ between bodies of one kind."""
_MOST_KINDS: Final = 256
"""Kinds that are remembered."""
_MOST_BYTES: Final = 256
"""Of a member, above which its digest stands for it."""


class Rendering(NamedTuple):
    """What vLLM's server has given its renderer besides messages, and what it got."""

    given: tuple[Any, ...]
    named: dict[str, Any]
    prompts: Any


class Template(NamedTuple):
    """What vLLM's server makes of each plain chat of a kind."""

    params: Any
    rendering: Rendering
    is_rest: bool
    """Whether an answer may take all that its prompt leaves."""
    head: HttpChunk
    digits: int
    """Of an answer's id, where the client gives none."""
    is_short: bool
    """Whether short chats are rendered without a thread."""


class BodyKind:
    """Bodies of one path that are the same but for their prompt, their limit and their user."""

    def __init__(self) -> None:
        self.is_laid_out = False
        """Whether its events were looked at."""
        self.layouts: StreamLayouts | None = None
        self.template: Template | None = None
        self.server: Any = None
        """Server of vLLM, which writes the events of errors; only of a kind that is known."""


class Kinds:
    """The kinds that came last."""

    def __init__(self) -> None:
        self._of_key = lru_cache(_MOST_KINDS)(lambda _key: BodyKind())

    def of(self, path: str, members: Mapping[str, msgspec.Raw], *, has_id: bool) -> BodyKind:
        """Return the kind of a body, which is new if no such body came lately.

        Args:
            has_id: whether its client has given its answer an id.
        """
        others = ((name, raw) for name, raw in members.items() if name not in _FREE)
        values = ((name, key_of(name, bytes(raw))) for name, raw in others)
        return self._of_key((path, has_id, *values))


def key_of(name: str, raw: bytes) -> bool | bytes:
    """Return what stands for a member where kinds are told apart; nothing of it is large."""
    if name in LIMITS:
        return raw == NULL
    return raw if len(raw) <= _MOST_BYTES else blake2b(raw, digest_size=16).digest()


# Answers: what vLLM's server writes of a body, what we write, and their tokens.

_COMMENT: Final = b":"
"""How an event begins that tells nothing."""


class BodyAnswer:
    """One body's answer: hands chunks on, and counts their tokens."""

    def __init__(
        self,
        sink: ChunkSink,
        engine: Any,
        *,
        sends_ids: bool,
        continuation: Continuation | None = None,
        kind: Callable[[], BodyKind | None] = lambda: None,
    ) -> None:
        self._sink, self.engine, self._may_send_ids = sink, engine, sends_ids
        self.continuation, self.kind = continuation, kind
        self.own: Any = SimpleNamespace(take=self.write, defer=sink.defer)
        """Takes what is written without the server."""
        self.head = HttpChunk()
        """Status and headers."""
        self.call: Call | None = None
        """Of the engine, by the server; None if there were several."""
        self.server: Any = None
        """Server of vLLM which writes its events, if a stream of our own stands for it."""
        self.num_calls = 0
        self.renderings: list[Rendering] = []
        """Of chats, by the server."""
        self.ids = b""
        """Of tokens that no chunk has carried yet."""
        self.is_over = False
        """Whether its last token has come: what is left of it leaves as one chunk."""
        self._buffered = HttpChunk()
        self.buffers_role = False
        """Whether the next event tells a chat's role, and leaves with the first that tells a token.

        The ids of that token come with the role, so a worker that resumes from there would not send
        the token itself.
        """
        self.shows_prompt = False
        self.shows_prompt_only = False
        self.prompt_tokens = self.generated_tokens = 0
        self.refusal: HttpError | None = None
        """Why nothing of it leaves: the client may send its request again later."""
        self.waits = False
        """Whether nothing leaves before the engine has given an output: until then it may refuse
        the request, whose status is not sent yet."""
        self.is_cut = False
        """Whether the engine died, also if the server hid that."""
        self.is_written = False
        """Whether all of it was written without the server."""
        self._given = 0

    cached_tokens: int | None = None
    """Of the prompt, those found in the prefix cache."""

    def may_send_ids(self, params: Any) -> bool:
        return self._may_send_ids and bool(resume_strategy_of(self.engine, params))

    def begin(self, head: HttpChunk) -> None:
        self.head = head

    def take(self, chunk: HttpChunk) -> None:
        if self.engine.errored:
            # Perhaps the server's own words of that, in the middle of a stream that can resume.
            self.is_cut = True
            return
        if images.is_refused() or self.is_written:
            # In vLLM's words, as a fault of the server; `HttpApp.respond` raises it.
            return
        if chunk.status in RETRYABLE:
            answered = HttpError(chunk.status, chunk.data.decode())
            self.refusal, self.is_written = HttpError(chunk.status, message_of(answered)), True
            return
        if chunk.data.startswith(EVENT):
            chunk.data = with_own_type(chunk.data)
        chunk.num_tokens, self._given = self.generated_tokens - self._given, self.generated_tokens
        chunk.num_prompt_tokens, chunk.num_cached_tokens = self.prompt_tokens, self.cached_tokens
        chunk.ids, self.ids = self.ids, b""
        if self.buffers_role and not chunk.is_last:
            self.buffers_role, self._buffered = False, chunk
            return
        # What keeps a connection alive has to leave.
        self.waits = self.waits and not chunk.is_last and not chunk.data.startswith(_COMMENT)
        if self.waits or (self.is_over and not chunk.is_last):
            # A worker that resumes from an answer's last token would generate more.
            self._buffered.merge(chunk)
            return
        if self._buffered.data:
            self._buffered.merge(chunk)
            self._buffered.status, self._buffered.headers = chunk.status, chunk.headers
            chunk, self._buffered = self._buffered, HttpChunk()
        self._sink.take(chunk)

    def refuse(self, error: Exception) -> bool:
        """Answer with an error of the engine; False if the client has got something already.

        Before its response has begun, vLLM's server answers so itself.
        """
        can_refuse = self.waits and self.head.headers and not self.engine.errored
        if can_refuse:
            self._buffered = HttpChunk()
            self.take(refusal(error))
            self.is_written = True
        return bool(can_refuse)

    def write(self, chunk: HttpChunk) -> None:
        if chunk.is_last:
            self.is_written = True
        self._given += chunk.num_tokens
        self._sink.take(chunk)


class Call:
    """One call of `AsyncLLM.generate` by vLLM's server, or in its place."""

    def __init__(
        self, client: EngineClient, answer: BodyAnswer | None, given: Mapping[str, Any]
    ) -> None:
        self.client, self.engine, self.given = client, client.engine, given
        self.answer: Any = answer
        self.params: Any = given.get("sampling_params")

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `AsyncLLM.add_request`."""
        others = {name: each for name, each in self.given.items() if name != "sampling_params"}
        return others | {"params": self.params}


current_answer: contextvars.ContextVar[BodyAnswer | None] = contextvars.ContextVar(
    "current_answer", default=None
)


class SeenRenderer:
    """vLLM's renderer of prompts; what its server gives it for a body is noted in the answer."""

    def __init__(self, own: Any) -> None:
        self.own = own

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """Whose class vLLM's server looks at."""
        return type(self.own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    async def render_chat_async(self, conversations: Any, *given: Any, **named: Any) -> Any:
        rendered = await self.own.render_chat_async(conversations, *given, **named)
        if (answer := current_answer.get()) is not None:
            answer.renderings.append(Rendering(given, named, rendered[1]))
        return rendered


class Counted:
    """What vLLM's own requests generate for an answer."""

    def __init__(self, engine: Any, answer: BodyAnswer, params: Any) -> None:
        self._answer = answer
        self._sends_ids = answer.num_calls == 1 and answer.may_send_ids(params)
        self._is_delta = getattr(params, "output_kind", None) == names.RequestOutputKind.DELTA
        self._has_prompt = False
        self._counted: dict[int, int] = {}
        """Tokens that are counted already of what an output tells, by answer."""

    def count(self, output: Any, *, is_replayed: bool = False) -> None:
        """Count the tokens of an output; vLLM gives all so far, or only what is new.

        Args:
            is_replayed: whether the stub has their ids.
        """
        if not self._has_prompt:
            self._has_prompt = True
            self._answer.waits = False
            images.release()
            self._answer.prompt_tokens += length(output.prompt_token_ids)
            self._answer.cached_tokens = compat.cached_tokens(output)
        for answer in output.outputs:
            ids = answer.token_ids
            given, counted = len(ids), self._counted.get(answer.index, 0)
            self._answer.generated_tokens += given - counted
            if self._sends_ids and not is_replayed:
                self._answer.ids += pack(ids[counted:])
            if not self._is_delta:
                self._counted[answer.index] = given
        # A method would be true from the first output on, and nothing would leave before the last.
        if output.finished is True and self._sends_ids:
            self._answer.is_over = True


# The public way, as vLLM's documentation has it: a task waits for the output of each token.


async def generate_publicly(
    engine: Any,
    arguments: dict[str, Any],
    reader: OutputReader,
    sink: DeltaSink,
    *,
    continuation: Continuation | None,
    on_added: Callable[[], Awaitable[None]],
) -> None:
    """Generate one request's answers, as `answers.generate` does."""
    given = {"sampling_params": arguments.pop("params"), **arguments}
    arguments.pop("prompt", None)
    resumed = ReplayedAnswer(engine, continuation) if continuation is not None else None
    current_replay.set(resumed)
    async with aclosing(engine.generate(**given)) as outputs:
        del given
        async for output in outputs:
            if resumed is not None:
                resumed.check_begun()
            await on_added()
            for delta in reader.deltas(output):
                sink.take(delta)


# The engine as vLLM's server sees it: what it generates is counted, and checked before.

_OWN_SIZE: Final = 4
_OWN_DEPTH: Final = 16
"""Of what vLLM writes around a client's schema, or makes of a grammar: times, and levels."""


class EngineClient:
    """The engine, whose generated tokens are counted for the HTTP request they belong to.

    All calls of vLLM's server come through here, so what it compiles is checked too.
    """

    def __init__(
        self,
        engine: Any,
        bounds: StructureBounds,
        grammars: GrammarTrials,
        adapters: LoraAdapters,
    ) -> None:
        self.engine, self._bounds, self._grammars = engine, _wrapped(bounds), grammars
        self.adapters = adapters
        # Since 0.20.
        self.renderer = SeenRenderer(getattr(engine, "renderer", None))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def _check_adapter(self, adapter: Any) -> None:
        """Refuse an adapter that nobody has looked at: see `LoraAdapters.hold`."""
        if adapter is not None and not self.adapters.is_loaded(adapter.lora_name):
            problem = "the body names its model in a way that cannot be read before"
            raise names.VLLMClientError(f"{problem}; accepted: JSON without NaN and Infinity")

    def encode(self, *args: Any, **kwargs: Any) -> Any:
        self._check_adapter(kwargs.get("lora_request"))
        return self.engine.encode(*args, **kwargs)

    async def check(self, call: Call) -> None:
        """Refuse what may end the core, and what it would compile, made of any field of a body."""
        self._check_adapter(call.given.get("lora_request"))
        structures = getattr(call.params, "structured_outputs", None)
        try:
            if extra := getattr(call.params, "extra_args", None):
                requests.check_extra_arguments(extra)
            if structures is not None:
                given = {key: value for key, value in vars(structures).items() if value is not None}
                check_structures(given, self._bounds)
                await self._grammars.check(call.params)
        except RequestError as error:
            raise names.VLLMClientError(str(error)) from error

    def generate(
        self, prompt: Any, sampling_params: Any, request_id: str, **others: Any
    ) -> AsyncGenerator[Any, None]:
        answer = current_answer.get()
        given = {"prompt": prompt, "sampling_params": sampling_params, "request_id": request_id}
        call = Call(self, answer, given | others)
        if answer is not None:
            answer.num_calls += 1
            # One of several is no whole answer.
            answer.call = call if answer.num_calls == 1 else None
        return self._generate(call)

    async def _generate(self, call: Call) -> AsyncGenerator[Any, None]:
        answer, params = call.answer, call.params
        counted = Counted(self.engine, answer, params) if answer else None
        echoed = EchoedPrompt(
            params,
            call.given.get("prompt"),
            is_all=answer is not None and answer.shows_prompt_only,
            is_echoed=answer is not None and answer.shows_prompt,
        )
        is_structured, num_tokens = getattr(params, "structured_outputs", None) is not None, 0
        resumed = None
        if answer is not None and answer.continuation is not None and answer.num_calls == 1:
            resumed = ReplayedAnswer(self.engine, answer.continuation)
            current_replay.set(resumed)
        outputs = self.engine.generate(**call.given)
        try:
            await self.check(call)
            async for output in outputs:
                output = echoed.mended(output)  # noqa: PLW2901
                if is_structured:
                    num_tokens = _fitting(output, num_tokens)
                for earlier in _replayed(resumed, counted):
                    yield earlier
                if counted is not None:
                    counted.count(output)
                yield output
        except Exception as error:
            if answer is not None and answer.refuse(error):
                # Its server has nothing more to do, nor to log.
                raise asyncio.CancelledError from error
            # vLLM's `generate` hides the error, and with it the status.
            raise unwrapped(error) from error
        finally:
            # Closing is the abort.
            await outputs.aclose()


def _replayed(resumed: ReplayedAnswer | None, counted: Counted | None) -> Iterator[Any]:
    """Yield the outputs of the tokens that the client of a resumed request has, once."""
    if resumed is None:
        return
    resumed.check_begun()
    while resumed.outputs:
        output = resumed.outputs.popleft()
        if counted is not None:
            counted.count(output, is_replayed=True)
        yield output


def _fitting(output: Any, num_tokens: int) -> int:
    """Return how many tokens of an answer with structured outputs fit them by now.

    Raises:
        VLLMClientError: the next one does not; vLLM's server would call it a fault of its own.
    """
    for each in getattr(output, "outputs", ()):
        num_new = length(each.token_ids)
        if each.finish_reason == "error":
            raise names.VLLMClientError(f"structured_outputs {unfit(num_tokens, num_new)}")
        num_tokens += num_new
    return num_tokens


def _wrapped(bounds: StructureBounds) -> StructureBounds:
    """Return the bounds of what vLLM makes of a client's schemas: it puts them into its own."""
    return replace(
        bounds,
        size=_OWN_SIZE * bounds.size,
        depth=bounds.depth + _OWN_DEPTH,
        repeats=_OWN_SIZE * bounds.repeats,
    )
