"""vLLM's own HTTP application around our engine: OpenAI's bodies are read where they are defined.

Chat templates, tools, reasoning, structured output, log probabilities, usage: all of it is vLLM's.
"""

from __future__ import annotations

import asyncio
import logging
from argparse import Namespace
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmi_backend.clients.openai import CHATS, COMPLETIONS, refusal
from lmi_backend.clients.registry import RESUMED, is_at_once
from lmi_backend.clients.spec import DESCRIPTION, JSON
from lmi_backend.engines.bodies import BodyBounds, check_body, members_of
from lmi_backend.engines.streams import respond_stream
from lmi_backend.engines.vllm import compat, fast_paths, images, names, streams, vllm_server
from lmi_backend.engines.vllm.bodies import (
    BodyAnswer,
    BodyKind,
    EngineClient,
    Kinds,
    current_answer,
)
from lmi_backend.engines.vllm.chats import Chats
from lmi_backend.engines.vllm.self_test import SelfTest
from lmi_backend.errors import (
    HTTP_ERROR,
    ConfigurationError,
    EngineDeadError,
    EngineError,
    HttpError,
    OptionError,
    RequestError,
)
from lmi_backend.generation import HttpChunk, HttpRequest
from lmi_backend.names import DEFAULT_MODEL_NAME

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from lmi_backend.engine_config import EngineConfig
    from lmi_backend.engines.protocol import ChunkSink
    from lmi_backend.engines.vllm.grammars import GrammarTrials
    from lmi_backend.engines.vllm.lora import LoraAdapters

    Message = MutableMapping[str, Any]
    Application = Callable[..., Awaitable[None]]

_log = logging.getLogger(__name__)

# Chunks the application may still send when its client has left.
_SPARE: Final = 16
# Time it has to notice that its client has left.
_LEAVE_SECONDS: Final = 1.0


async def respond(
    application: Application,
    request: HttpRequest,
    take: Callable[[HttpChunk], None],
    begin: Callable[[HttpChunk], None] = lambda head: None,
) -> None:
    """Hand over the answer as it comes; each chunk has status and headers.

    Cancelling tells the application that its client has left, and waits until it returns.

    Args:
        begin: called with status and headers alone, before any chunk.

    Raises:
        Exception: what the application raised before its answer was complete, or EngineError.
    """
    answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    has_gone, head = asyncio.Event(), HttpChunk()
    spare = iter(range(_SPARE))

    async def send(message: Message) -> None:
        nonlocal head
        if has_gone.is_set():
            # An application streams from a generator: to raise or be cancelled here would leave
            # that open, and the engine would generate to the end.
            if next(spare, None) is None:
                raise OSError("the client has left")
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

    receive = _receiver(request.body, has_gone)
    task = asyncio.ensure_future(application(scope_of(request), receive, send))
    try:
        await asyncio.wait({task, answered}, return_when=asyncio.FIRST_COMPLETED)
        if not answered.done():
            raise _cause(task)
    finally:
        has_gone.set()
        await _end(task)


def _cause(task: asyncio.Future[None]) -> BaseException:
    error = None if task.cancelled() else task.exception()
    return error or EngineError("the engine's server finished without an answer")


def _receiver(body: bytes, has_gone: asyncio.Event) -> Callable[[], Awaitable[Message]]:
    bodies = iter([body])

    async def receive() -> Message:
        for each in bodies:
            return {"type": "http.request", "body": each, "more_body": False}
        await has_gone.wait()
        return {"type": "http.disconnect"}

    return receive


async def _end(task: asyncio.Future[None]) -> None:
    """Let an application that has answered return, and make it."""
    try:
        await asyncio.wait({task}, timeout=_LEAVE_SECONDS)
    finally:
        task.cancel()
    (error,) = await asyncio.gather(task, return_exceptions=True)
    if isinstance(error, Exception) and not isinstance(error, OSError):
        _log.debug("the application raised after its answer: %s", error)


def scope_of(request: HttpRequest) -> dict[str, Any]:
    path, _, query = request.path.partition("?")
    given = {name.lower(): value for name, value in request.headers.items()}
    headers = {"content-type": JSON} | given
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


class HttpApp:
    """vLLM's application, called without a socket. `create` makes one."""

    def __init__(
        self,
        app: Any,
        engine: Any,
        config: EngineConfig,
        longest_token: int,
        adapters: LoraAdapters,
        client: EngineClient,
    ) -> None:
        self._app, self._engine, self._sends_ids = app, engine, config.sends_ids
        max_model_len = engine.model_config.max_model_len
        self._bounds = BodyBounds(
            config.structure_bounds,
            max_model_len,
            longest_token,
            reads=vllm_server.members_read(app),
            trusts_media=bool(getattr(app.state.args, "trust_request_mm_kwargs", False)),  # 0.32
            runs_tools=bool(getattr(app.state.args, "tool_server", None)),
        )
        self._adapters = adapters
        vllm_server.attach_prefill(app)
        vllm_server.attach_requested_name(app)
        self._kinds = Kinds()
        self._chats = Chats(client, self._kinds)
        self._writes_streams = not _is_watched(app, engine.model_config) and fast_paths.probe(
            "own_streams", "servers of chats and completions", lambda: streams.attach(app)
        )
        if self._writes_streams:
            self._chats.attach(vllm_server.answering(app, CHATS))
        self.num_answered = 0

    @classmethod
    async def create(
        cls,
        engine: Any,
        engine_args: Any,
        adapters: LoraAdapters,
        config: EngineConfig,
        *,
        longest_token: int = 0,
        grammars: GrammarTrials,
    ) -> HttpApp:
        fast_paths.probe("short_errors", "code that cleans errors", compat.cut_messages)
        arguments = _arguments(engine_args, config)
        client = EngineClient(engine, config.structure_bounds, grammars, adapters)
        tasks = await compat.answer_of(engine, "get_supported_tasks")
        with vllm_server.hidden():
            app = vllm_server.call(
                names.build_app,
                args=arguments,
                supported_tasks=tasks,  # 0.16
                model_config=engine.model_config,  # 0.20
            )
        app = vllm_server.uncounted(compat.checked(app, "build_app", "routes", "state"))
        try:
            filling = vllm_server.call(
                names.init_app_state,
                engine_client=client,
                vllm_config=engine.vllm_config,  # 0.11
                state=app.state,
                args=arguments,
                supported_tasks=tasks,
            )
            await compat.settled(filling)
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigurationError(f"vLLM's server refuses its options: {error}") from error
        # In place of uvicorn's: an error handler of vLLM's sets it, and a worker stops itself.
        compat.changed(app.state, server=SimpleNamespace(should_exit=False), args=arguments)
        adapters.share(vllm_server.models(app))
        return cls(app, engine, config, longest_token, adapters, client)

    async def respond(self, request: HttpRequest, sink: ChunkSink) -> None:
        try:
            answer = await self._respond(request, sink)
        except Exception as error:
            if self._engine.errored:
                raise self._death() from error
            raise
        self.num_answered += answer is not None and answer.generated_tokens > 0

    async def _respond(self, request: HttpRequest, sink: ChunkSink) -> BodyAnswer | None:
        """Answer a body; return what was answered, None if the body is refused."""
        if request.path == DESCRIPTION:
            # Made once, in a second or two that no stream shall wait for.
            await asyncio.to_thread(self._app.openapi)
        try:
            body = check_body(request.body, self._bounds, request.path)
            model = body.fields.get("model")
            adapter: AbstractContextManager[Any] = nullcontext()
            # An adapter may have been given a name under which the model itself has answered.
            is_model = not (isinstance(model, str) and model in self._adapters.by_name)
            if not is_model:
                adapter = await self._adapters.hold(self._engine, str(model))
        except RequestError as error:
            sink.take(refusal(error))
            return None
        if body.data is not request.body:
            request = msgspec.structs.replace(request, body=body.data)
        chat = self._chats.read(request, body) if is_model else None
        shows_prompt = request.path == COMPLETIONS and bool(body.fields.get("echo"))
        shows_prompt_only = shows_prompt and _is_zero(body.fields.get("max_tokens"))
        del body  # it may be ten times what was sent, and the answer long

        def kind() -> BodyKind | None:
            if chat is not None:
                return chat.kind
            read = members_of(request.body)
            return None if read is None else self._kinds.of(request.path, read, has_id=False)

        answer = self._answer(request, sink, kind)
        if chat is not None:
            if await self._chats.respond(chat, answer):
                return answer
            answer = self._answer(request, sink, kind)
        answer.shows_prompt, answer.shows_prompt_only = shows_prompt, shows_prompt_only
        answer.waits = request.continuation is None and not is_at_once(request.path)
        answer.buffers_role = request.path == CHATS
        current_answer.set(answer)
        vllm_server.requested_name.set(model)
        with adapter, images.charged():
            await self._respond_by_server(request, answer)
        if chat is not None:
            self._chats.note(chat, answer)
        return answer

    async def _respond_by_server(self, request: HttpRequest, answer: BodyAnswer) -> None:
        try:
            await respond(self._app, request, answer.take, answer.begin)
        except Exception as error:
            is_dead = isinstance(error, EngineDeadError) or self._engine.errored
            if is_dead or not answer.is_written:
                raise
        if answer.is_cut:
            raise self._death()
        if answer.refusal is not None:
            raise answer.refusal

    def _answer(
        self, request: HttpRequest, sink: ChunkSink, kind: Callable[[], BodyKind | None]
    ) -> BodyAnswer:
        return BodyAnswer(
            sink,
            self._engine,
            sends_ids=self._sends_ids and request.path in RESUMED,
            continuation=request.continuation,
            kind=kind,
        )

    def self_test(self, tokenizer: Any) -> SelfTest:
        name = self._app.state.args.served_model_name[-1]
        return SelfTest(
            self._engine, tokenizer, self._respond, name, writes_streams=self._writes_streams
        )

    def _death(self) -> EngineDeadError:
        why = getattr(self._engine, "dead_error", "it does not say why")
        return EngineDeadError(f"vLLM's engine core died: {why}")


def _is_zero(limit: Any) -> bool:
    """Tell whether a limit is none at all, as pydantic reads numbers."""
    try:
        return float(limit) == 0
    except (TypeError, ValueError):
        return False


def _is_watched(app: Any, model_config: Any) -> bool:
    """Tell whether vLLM's server has to write all streams, because something looks at each."""
    watching = vllm_server.watchers(app)
    if getattr(model_config, "is_encoder_decoder", False):
        watching.append("the tokens of an encoder")
    if watching:
        _log.info("vLLM's server writes all streams, for %s", ", ".join(watching))
    return bool(watching)


def _arguments(engine_args: Any, config: EngineConfig) -> Any:
    arguments = vars(vllm_server.argument_parser().parse_args([])) | vars(engine_args)
    for name, value in config.front_end.items():
        if name not in arguments:
            problem = f"is not known to the server of vLLM {names.vllm_version}"
            key = f"option.{name}"
            raise OptionError(problem, option=key, value=str(value), origin="vLLM")
    arguments |= config.front_end
    given = arguments["served_model_name"] or [DEFAULT_MODEL_NAME]
    served = [given] if isinstance(given, str) else list(given)
    # Last: answers carry the first of them.
    own = () if config.name in ("", *config.adapters) else (config.name,)
    arguments["served_model_name"] = list(dict.fromkeys((*served, *own)))
    if plugin := arguments.get("tool_parser_plugin"):
        names.ToolParserManager.import_tool_parser(plugin)
    return Namespace(**arguments)


_READ: Final = (
    "messages", "tools", "chat_template_kwargs", "add_generation_prompt", "continue_final_message",
)  # fmt: skip
"""Members of a chat that make its prompt."""


class _Tokenized(msgspec.Struct):
    tokens: list[int]


async def chat_ids(app: HttpApp, body: dict[str, Any]) -> list[int]:
    members = {name: body[name] for name in _READ if body.get(name) is not None}
    request = HttpRequest("/tokenize", msgspec.json.encode(members))
    chunks = [each async for each in respond_stream(app.respond, request)]
    data, status = b"".join(each.data for each in chunks), chunks[0].status
    if status >= HTTP_ERROR:
        raise HttpError(status, data.decode("utf-8", "replace"))
    return msgspec.json.decode(data, type=_Tokenized).tokens
