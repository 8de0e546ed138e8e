"""The streams of vLLM's server, written from answers of our own.

vLLM's server reads a body, makes its prompt and parameters, and calls the engine. What it then does
for each output, an object of pydantic and its JSON, is what costs. A subclass has the answer
generated and written here. Where the events of a stream tell more than its text, or what a parser
makes of that, vLLM's own method writes them.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmi_backend.clients.openai import CHATS, COMPLETIONS
from lmi_backend.engines.vllm import answers, compat, fast_paths, images, names, vllm_server
from lmi_backend.engines.vllm.bodies import current_answer
from lmi_backend.engines.vllm.layouts import (
    CHAT_DELTA,
    CHAT_TEXT,
    COMPLETION_TEXT,
    DONE,
    USAGE,
    Place,
    Sample,
    StreamLayouts,
)
from lmi_backend.engines.vllm.requests import unfit, unwrapped
from lmi_backend.generation import HttpChunk
from lmi_backend.tokenization import pack

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence

    from lmi_backend.engines.vllm.answers import Piece
    from lmi_backend.engines.vllm.bodies import BodyAnswer, Call
    from lmi_backend.engines.vllm.layouts import EventLayout

    Events = AsyncGenerator[str, None]
    Write = Callable[[Any, AsyncIterator[Any]], Events]
    """vLLM's method that writes the events of outputs, of a server."""

_log = logging.getLogger(__name__)

_encode = msgspec.json.encode
_CONTENT_ALONE: Final = {"content"}


class TextParser:
    """A parser of vLLM, of tools or of reasoning, that reads the text of one answer."""

    def __init__(self, theirs: Any, request: Any) -> None:
        self._theirs, self._request = theirs, request
        self._prompt_ids: Sequence[int] | None = None
        self._ids: list[int] = []
        choice = getattr(request, "tool_choice", None)
        self._is_named = choice is not None and not isinstance(choice, str)
        self._has_calls = False

    def begin(self, prompt_ids: Sequence[int] | None) -> None:
        self._prompt_ids = prompt_ids

    def read(self, text: str, ids: Sequence[int], *, is_last: bool) -> Any:
        """Return vLLM's DeltaMessage of new text; None if the parser waits for more."""
        self._ids += ids
        delta = self._theirs.parse_delta(
            delta_text=text,
            delta_token_ids=list(ids),
            request=self._request,
            prompt_token_ids=self._prompt_ids,
            finished=is_last,
        )
        if delta is not None and delta.tool_calls:
            self._has_calls = True
        return names.DeltaMessage() if delta is None and is_last else delta

    def reason(self, reason: str | None) -> str | None:
        """Return why an answer is finished, as clients of tools want it."""
        is_call = reason == "stop" and self._has_calls and not self._is_named
        return "tool_calls" if is_call else reason

    @property
    def reasoning_tokens(self) -> int:
        count: int = self._theirs.count_reasoning_tokens(tuple(self._ids))
        return count


class StreamWriter:
    """Makes the chunks of one answer; `answers.generate` gives it the pieces.

    Args:
        head: of the answer: status and headers.
        is_structured: whether the answer has to fit a grammar.
    """

    is_whole = False
    writes_prefix = True

    def __init__(
        self,
        layouts: StreamLayouts,
        head: HttpChunk,
        answer_id: str,
        *,
        sends_ids: bool,
        parser: TextParser | None = None,
        is_structured: bool = False,
    ) -> None:
        self._layouts, self._head, self._sends_ids = layouts, head, sends_ids
        self._parser, self._is_structured = parser, is_structured
        self._stream = {"id": answer_id, "created": int(time.time())}
        self._prefix, self._suffix = layouts.middle.around(self._stream)
        self._waiting: list[int] = []
        """Tokens that the parser has made nothing of yet."""
        self.num_tokens = self.num_prompt_tokens = 0
        self.is_begun = False

    def begin(self, prompt_ids: Sequence[int] | None, num_prompt_tokens: int) -> None:
        self.num_prompt_tokens = num_prompt_tokens
        if self._parser is not None:
            self._parser.begin(prompt_ids)

    def chunk(self, piece: Piece) -> HttpChunk | None:
        """Return the chunk of a piece; None if the parser waits for more."""
        ids: Sequence[int] = piece.token_ids
        self.num_tokens += len(ids)
        if self._parser is not None:
            is_last = piece.finish_reason is not None
            delta = self._parser.read(piece.text, ids, is_last=is_last)
            ids = self._waiting = [*self._waiting, *ids]
            if delta is None:
                return None
            new, self._waiting = _json(delta), []
        else:
            new = _encode(piece.text)
        # Most chunks are made here, so nothing is called that can be said in a line.
        if piece.finish_reason is None:
            data = self._prefix + new + self._suffix
        else:
            data = self._last(new, piece)
        chunk = HttpChunk(
            data,
            piece.finish_reason is not None,
            num_tokens=len(ids),
            num_prompt_tokens=self.num_prompt_tokens,
            ids=pack(ids) if self._sends_ids else b"",
        )
        if not self.is_begun:
            self.is_begun = True
            # The ids of the first token come with the role.
            role = self._layouts.role
            chunk.data = (role.event(self._stream) if role else b"") + data
            chunk.status, chunk.headers = self._head.status, self._head.headers
        return chunk

    def add_prompt(self, chunk: HttpChunk, logprobs: Any) -> None:
        """Add nothing: vLLM writes such streams."""

    def failure(self, num_tokens: int) -> Exception:
        if self._is_structured:
            error: Exception = names.VLLMClientError(f"structured_outputs {unfit(num_tokens)}")
            return error
        return RuntimeError("Internal server error")

    def _last(self, new: bytes, piece: Piece) -> bytes:
        reason = piece.finish_reason
        if self._parser is not None:
            reason = self._parser.reason(reason)
        ends = {"finish_reason": reason, "stop_reason": piece.stop_reason}
        event = self._layouts.last.event(self._stream | ends | {"new": msgspec.Raw(new)})
        usage = self._layouts.usage
        return event + (usage.event(self._stream | self._counts(usage)) if usage else b"") + DONE

    def _counts(self, usage: EventLayout) -> dict[str, int]:
        prompt, completion = self.num_prompt_tokens, self.num_tokens
        counts = dict(zip(USAGE, (prompt, completion, prompt + completion), strict=True))
        if "reasoning_tokens" in usage.gaps:
            counts["reasoning_tokens"] = self._parser.reasoning_tokens if self._parser else 0
        return counts


def _json(delta: Any) -> bytes:
    if delta.model_fields_set == _CONTENT_ALONE and type(delta.content) is str:
        return b'{"content":' + _encode(delta.content) + b"}"
    made: str = delta.model_dump_json(exclude_unset=True)
    return made.encode()


_SAMPLES: Final = (Sample("a", None), Sample("b", None), Sample("c", "stop"))
"""Outputs that vLLM's server writes the events of, so that their layouts are known."""
_PROMPT: Final = list(range(101, 112))
_PLAIN: Final = {"n": 1, "logprobs": None, "prompt_logprobs": None, "logprob_token_ids": None}
"""Parameters of streams that tell nothing but text."""


class ChatStreams:
    """What an OpenAIServingChat does besides vLLM's own work."""

    def chat_completion_stream_generator(
        self, request: Any, result_generator: Any, request_id: str, *more: Any, **named: Any
    ) -> Events:
        given = (request_id, *more)

        def write(server: Any, outputs: Any) -> Any:
            theirs: Any = super()
            return theirs.chat_completion_stream_generator(request, outputs, *given, **named)

        call = call_of_own(request)
        if call is None:
            return write(self, result_generator)  # type: ignore[no-any-return]
        if getattr(self, "parser_cls", None) is None:
            server = _Server(self, write)
            return _events(call, server, request_id, CHAT_TEXT, None, result_generator)
        parsers = partial(_parser_of, self, request, named)
        try:
            parser = parsers(request.messages)
        except Exception as error:  # noqa: BLE001  vLLM's server says it in its own words
            _log.debug("no parser: %s: %s", type(error).__name__, error)
            return write(self, result_generator)  # type: ignore[no-any-return]
        server = _Server(self, write, parsers)
        return _events(call, server, request_id, CHAT_DELTA, parser, result_generator)


def _parser_of(server: Any, request: Any, named: dict[str, Any], messages: Any) -> TextParser:
    if messages is not request.messages:
        request = request.model_copy(update={"messages": messages})
    kwargs = named["chat_template_kwargs"]
    return TextParser(server._make_parser(request, server.renderer.tokenizer, kwargs), request)


class CompletionStreams:
    """Writes the streams of an OpenAIServingCompletion."""

    def completion_stream_generator(
        self,
        request: Any,
        engine_inputs: Any,
        result_generator: Any,
        request_id: str,
        *more: Any,
        **named: Any,
    ) -> Events:
        given = (request_id, *more)

        def write(server: Any, outputs: Any) -> Any:
            theirs: Any = super()
            numbered = outputs if outputs is result_generator else _numbered(outputs)
            return theirs.completion_stream_generator(
                request, engine_inputs, numbered, *given, **named
            )

        call = call_of_own(request)
        if call is None:
            return write(self, result_generator)  # type: ignore[no-any-return]
        server = _Server(self, write)
        return _events(call, server, request_id, COMPLETION_TEXT, None, result_generator)


class _Server:
    """One of vLLM's servers, with its method that writes events."""

    def __init__(
        self, own: Any, write: Write, parsers: Callable[[Any], TextParser] | None = None
    ) -> None:
        self._own, self._write, self.parsers = own, write, parsers

    def events(self, outputs: AsyncIterator[Any]) -> Events:
        return self._write(self._own, outputs)

    async def layouts(self, gap: Place) -> StreamLayouts | None:
        """Return the layouts of its events; None if they tell more than what is new."""
        plain = self._own
        if gap == CHAT_DELTA:
            # A parser would wait for more of a text that is made up.
            plain = compat.replaced(plain, parser_cls=None)
        events = [each.encode() async for each in self._write(plain, _sampled())]
        return StreamLayouts.of(events, _SAMPLES, (len(_PROMPT), len(_SAMPLES)), gap)

    def failure(self, error: Exception) -> list[str]:
        error_json: str = self._own.create_streaming_error_response(unwrapped(error))
        return [f"data: {error_json}\n\n", DONE.decode()]


def call_of_own(request: Any) -> Call | None:
    """Return the call of the engine that a stream of our own is for; None if vLLM writes it."""
    answer = current_answer.get()
    call = answer.call if answer is not None else None
    if call is None or not fast_paths.is_on("own_streams"):
        return None
    params = call.params
    tells_text = all(getattr(params, name, None) == value for name, value in _PLAIN.items())
    # The last of these are values of other engines, which come with the last output.
    wanted = ("echo", "return_token_ids", "kv_transfer_params", "ec_transfer_params")
    is_more = any(getattr(request, name, None) for name in wanted)
    # vLLM drops calls from what its parser makes.
    is_filtered = getattr(request, "tools", None) and not request.parallel_tool_calls
    is_stream = getattr(params, "output_kind", None) == names.RequestOutputKind.DELTA
    return call if tells_text and is_stream and not (is_more or is_filtered) else None


async def _events(
    call: Call,
    server: _Server,
    answer_id: str,
    gap: Place,
    parser: TextParser | None,
    theirs: AsyncIterator[Any],
) -> AsyncGenerator[str, None]:
    """Write the events of a call to its answer; yield those that vLLM writes."""
    answer: BodyAnswer = call.answer
    answer.server = server
    if (layouts := await _layouts(answer, server, gap)) is None:
        async for event in server.events(theirs):
            yield event
        return
    writer = StreamWriter(
        layouts,
        answer.head,
        answer_id,
        sends_ids=answer.may_send_ids(call.params),
        parser=parser,
        is_structured=getattr(call.params, "structured_outputs", None) is not None,
    )
    error = await write(call, writer, on_added=_release_images)
    if error is not None and not answer.refuse(error):
        for event in server.failure(error):
            yield event


async def _release_images() -> None:
    images.release()


async def write(
    call: Call, writer: StreamWriter, on_added: Callable[[], Awaitable[None]] = answers.do_nothing
) -> Exception | None:
    """Have a call generated and written to its answer; return what the client is to be told of.

    Args:
        on_added: see `answers.generate`.

    Raises:
        Exception: the engine is dead.
    """
    answer = call.answer
    try:
        await call.client.check(call)
        await answers.generate(
            call.engine,
            call.arguments(),
            writer,
            answer.own,
            continuation=answer.continuation,
            on_added=on_added,
        )
    except Exception as error:
        if call.engine.errored:
            raise
        return error
    finally:
        answer.prompt_tokens += writer.num_prompt_tokens
        answer.generated_tokens += writer.num_tokens
    return None


async def _layouts(answer: BodyAnswer, server: _Server, gap: Place) -> StreamLayouts | None:
    kind = answer.kind()
    if kind is None or not kind.is_laid_out:
        layouts = None
        with fast_paths.guarded("own_streams", "a server that writes the events of samples"):
            layouts = await server.layouts(gap)
        if kind is None:
            return layouts
        kind.layouts, kind.is_laid_out = layouts, True
    return kind.layouts


async def _sampled() -> AsyncGenerator[Any, None]:
    """Yield made-up outputs; what a request may want besides its text is in them, too."""
    for place, each in enumerate(_SAMPLES):
        yield names.RequestOutput(
            request_id="sample",
            prompt="sample",
            prompt_token_ids=_PROMPT,
            prompt_logprobs=None,
            outputs=[
                names.CompletionOutput(
                    index=0,
                    text=each.text,
                    token_ids=[place + 1],
                    cumulative_logprob=None,
                    logprobs=None,
                    finish_reason=each.finish_reason,
                )
            ],
            finished=each.finish_reason is not None,
            num_cached_tokens=1,
        )


async def _numbered(outputs: AsyncIterator[Any]) -> AsyncGenerator[tuple[int, Any], None]:
    async for output in outputs:
        yield 0, output


def attach(app: Any) -> None:
    """Have the streams of vLLM's application written here."""
    for path, kind in ((CHATS, ChatStreams), (COMPLETIONS, CompletionStreams)):
        server = vllm_server.answering(app, path)
        if server is not None:
            compat.subclass(server, kind)
