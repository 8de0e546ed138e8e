"""The streams of vLLM's server, written from answers of our own.

vLLM's server reads a body, makes its prompt and parameters, and calls the engine. What it then does
for each output, an object of pydantic and its JSON, is what costs. A subclass has the answer
generated and written here. Where the events of a stream tell more than its text, or what a parser
makes of that, vLLM's own method writes them.
"""

from __future__ import annotations

import copy
import logging
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.clients.openai.paths import CHATS, COMPLETIONS
from lmi_backend.engines.vllm.inside import (
    answers,
    compat,
    fast_paths,
    images,
    names,
    server_compat,
)
from lmi_backend.engines.vllm.inside.answer import current_answer
from lmi_backend.engines.vllm.inside.layouts import (
    CHAT_DELTA,
    CHAT_TEXT,
    COMPLETION_TEXT,
    Place,
    Played,
    StreamLayouts,
)
from lmi_backend.engines.vllm.inside.stream_writer import (
    FailedOutputError,
    StreamWriter,
    TextParser,
)
from lmi_backend.generation import reports_error

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from lmi_backend.engines.vllm.inside.answer import BodyAnswer, Call

    Events = AsyncGenerator[str, None]
    Write = Callable[[Any, AsyncIterator[Any]], Events]
    """vLLM's method that writes the events of outputs, of a server."""

_log = logging.getLogger(__name__)

_PLAYED: Final = (Played("a", None), Played("b", None), Played("c", "stop"))
"""Outputs that vLLM's server writes the events of, so that their layouts are known."""
_PROMPT: Final = list(range(101, 112))
_PLAIN: Final = {"n": 1, "logprobs": None, "prompt_logprobs": None, "logprob_token_ids": None}
"""Parameters of streams that tell nothing but text."""


class ChatStreams:
    """What an OpenAIServingChat does besides vLLM's own work."""

    def chat_completion_stream_generator(
        self, request: Any, result_generator: Any, request_id: str, *more: Any, **named: Any
    ) -> Events:
        """Return the events of a chat."""
        given = (request_id, *more)

        def write(server: Any, outputs: Any) -> Any:
            theirs: Any = super()
            return theirs.chat_completion_stream_generator(request, outputs, *given, **named)

        call = _call_of_own(request)
        if call is None:
            return write(self, result_generator)  # type: ignore[no-any-return]
        if getattr(self, "parser_cls", None) is None:
            server = _Server(self, write)
            return _events(call, server, request_id, CHAT_TEXT, None, result_generator)
        try:
            parser = TextParser(_parser_of(self, request, named), request)
        except Exception as error:  # noqa: BLE001  vLLM's server says it in its own words
            _log.debug("no parser: %s: %s", type(error).__name__, error)
            return write(self, result_generator)  # type: ignore[no-any-return]
        server = _Server(self, write)
        return _events(call, server, request_id, CHAT_DELTA, parser, result_generator)


def _parser_of(server: Any, request: Any, named: dict[str, Any]) -> Any:
    """Return a new parser of a chat server; raises what vLLM does."""
    return server._make_parser(request, server.renderer.tokenizer, named["chat_template_kwargs"])


class CompletionStreams:
    """The same of an OpenAIServingCompletion."""

    def completion_stream_generator(
        self,
        request: Any,
        engine_inputs: Any,
        result_generator: Any,
        request_id: str,
        *more: Any,
        **named: Any,
    ) -> Events:
        """Return the events of a completion."""
        given = (request_id, *more)

        def write(server: Any, outputs: Any) -> Any:
            theirs: Any = super()
            numbered = outputs if outputs is result_generator else _numbered(outputs)
            return theirs.completion_stream_generator(
                request, engine_inputs, numbered, *given, **named
            )

        call = _call_of_own(request)
        if call is None:
            return write(self, result_generator)  # type: ignore[no-any-return]
        server = _Server(self, write)
        return _events(call, server, request_id, COMPLETION_TEXT, None, result_generator)


class _Server:
    """One of vLLM's servers, with its method that writes events.

    Args:
        own: the server.
        write: writes the events of outputs.
    """

    def __init__(self, own: Any, write: Write) -> None:
        self._own, self._write = own, write

    def events(self, outputs: AsyncIterator[Any]) -> Events:
        """Return vLLM's events of outputs."""
        return self._write(self._own, outputs)

    async def layouts(self, gap: Place) -> StreamLayouts | None:
        """Return the layouts of its events; None if they tell more than what is new."""
        plain = self._own
        if gap == CHAT_DELTA:
            # A parser would wait for more of a text that is made up.
            plain = copy.copy(plain)
            plain.parser_cls = None
        events = [each.encode() async for each in self._write(plain, _played())]
        return StreamLayouts.of(events, _PLAYED, (len(_PROMPT), len(_PLAYED)), gap)

    async def failure(self, call: Call, error: Exception) -> AsyncGenerator[str, None]:
        """Yield vLLM's events of an error in the middle of a stream."""
        is_error = False
        async for event in self.events(_failed(call, error)):
            is_error = is_error or reports_error(event.encode())
            if is_error:
                yield event


def _call_of_own(request: Any) -> Call | None:
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
    error = await write(call, writer)
    if error is not None:
        async for event in server.failure(call, error):
            yield event


async def write(call: Call, writer: StreamWriter) -> Exception | None:
    """Have a call generated and written to its answer; return what the client is to be told of.

    Raises:
        Exception: the engine is dead.
    """
    answer = call.answer

    async def release() -> None:
        images.release()

    try:
        await call.client.check(call.params, call.named)
        await answers.generate(
            call.engine,
            call.arguments(),
            writer,
            answer.own,
            continuation=answer.continuation,
            on_added=release,
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
        try:
            found = await server.layouts(gap)
        except Exception as error:  # noqa: BLE001  vLLM's server writes them
            fast_paths.turn_off("own_streams", _EXPECTED, f"{type(error).__name__}: {error}")
            found = None
        if kind is None:
            return found
        kind.layouts, kind.is_laid_out = found, True
    return kind.layouts


_EXPECTED: Final = "a server that writes the events of made-up outputs"


async def _played() -> AsyncGenerator[Any, None]:
    """Yield made-up outputs; what a request may want besides its text is in them, too."""
    for place, each in enumerate(_PLAYED):
        yield names.RequestOutput(
            request_id="played",
            prompt="played",
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


class _FailedEngine:
    """An engine whose next request fails."""

    def __init__(self, engine: Any, error: Exception) -> None:
        self._engine, self._error = engine, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def add_request(self, *_: Any, **__: Any) -> Any:
        """Fail."""
        raise self._error


async def _failed(call: Call, error: Exception) -> AsyncGenerator[Any, None]:
    """Fail as vLLM's `generate` does, which raises other errors than it gets."""
    if isinstance(error, FailedOutputError):
        async for output in _played():
            output.outputs[0].finish_reason = "error"
            yield output
    failed = _FailedEngine(call.engine, error)
    async for output in type(call.engine).generate(failed, *call.given, **call.named):
        yield output


def attach(app: Any) -> None:
    """Have the streams of vLLM's application written here."""
    for path, kind in ((CHATS, ChatStreams), (COMPLETIONS, CompletionStreams)):
        server = server_compat.answering(app, path)
        if server is not None:
            compat.subclass(server, kind)
