"""vLLM's own HTTP application around our engine: OpenAI's bodies are read where they are defined.

Chat templates, tools, reasoning, structured output, log probabilities, usage: all of it is vLLM's.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec

from lmi_backend.clients.openai.paths import CHATS, COMPLETIONS, EMBEDDINGS
from lmi_backend.clients.registry import RESUMED
from lmi_backend.engines.bodies import BodyBounds, asked_in, check_body
from lmi_backend.engines.vllm.asgi import respond
from lmi_backend.engines.vllm.inside import (
    fast_paths,
    images,
    names,
    needs,
    prefill,
    server_compat,
    tool_calls,
)
from lmi_backend.engines.vllm.inside.adapter_table import AdapterTable
from lmi_backend.engines.vllm.inside.answer import BodyAnswer, answers
from lmi_backend.engines.vllm.inside.asked_name import AskedName
from lmi_backend.engines.vllm.inside.continuation import Continued, current
from lmi_backend.engines.vllm.inside.counting_client import CountingClient
from lmi_backend.engines.vllm.inside.direct_calls import DirectCalls
from lmi_backend.engines.vllm.inside.event_trial import How, StreamPaths
from lmi_backend.engines.vllm.inside.failed_stream import FailedStream
from lmi_backend.engines.vllm.inside.known_chats import Chat, KnownChats
from lmi_backend.engines.vllm.inside.known_embeddings import KnownEmbeddings
from lmi_backend.engines.vllm.inside.trial import Trial
from lmi_backend.errors import ConfigurationError, EngineDeadError, OptionError, RequestError
from lmi_backend.generation import HttpChunk, HttpRequest, openai_error
from lmi_backend.names import DEFAULT_MODEL_NAME
from lmi_backend.outline import LARGE, Outline

if TYPE_CHECKING:
    from collections.abc import Collection

    from lmi_backend.engine_config import EngineConfig
    from lmi_backend.engines.protocol import ChunkSink
    from lmi_backend.engines.vllm.inside.grammars import GrammarTrials
    from lmi_backend.engines.vllm.lora import LoraAdapters


class HttpApp:
    """vLLM's application, called without a socket. `create` makes one."""

    def __init__(
        self,
        app: Any,
        engine: Any,
        config: EngineConfig,
        longest_token: int,
        adapters: AdapterTable,
    ) -> None:
        self._app, self._engine, self._sends_ids = app, engine, config.sends_ids
        max_model_len = engine.model_config.max_model_len
        self._bounds = BodyBounds(
            config.structure_bounds,
            max_model_len,
            longest_token,
            reads=server_compat.members_read(app),
            trusts_media=bool(getattr(app.state.args, "trust_request_mm_kwargs", False)),  # 0.32
            runs_tools=bool(getattr(app.state.args, "tool_server", None)),
        )
        self._calls, self._adapters = DirectCalls(app, config.front_end), adapters
        tool_calls.attach(app)
        prefill.attach(app)
        self._asked = AskedName(server_compat.models(app), app.state.args.served_model_name)
        self._chats = KnownChats(engine, sends_ids=config.sends_ids)
        if CHATS in self._calls.plain_paths:
            self._chats.attach(server_compat.answering(app, CHATS))
        self._embeddings = KnownEmbeddings(engine, self._bounds, adapters)
        self._embeddings.attach(app)
        self.num_answered = 0
        """Bodies that were answered with tokens."""

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
        """Build the application.

        Args:
            longest_token: its characters; 0 if they are not known.
            grammars: try what is to be compiled.

        Raises:
            OptionError: an option is not one of vLLM's server.
            ConfigurationError: vLLM's server refuses an option's value.
        """
        server = server_compat.http_server()
        fast_paths.probe("short_errors", "code that cleans errors", server_compat.cut_messages)
        arguments = _arguments(server, engine_args, config)
        client = CountingClient(engine, config.structure_bounds, grammars, adapters)
        tasks = await needs.supported_tasks(engine)
        with server_compat.hidden():
            app = server_compat.call(
                server.build_app,
                args=arguments,
                supported_tasks=tasks,  # 0.16
                model_config=engine.model_config,  # 0.20
            )
        server_compat.stop_counting(needs.checked(app, "build_app", "routes", "state"))
        app.state.args = arguments  # as 0.13 and later do
        try:
            filling = server_compat.call(
                server.init_app_state,
                engine_client=client,
                vllm_config=engine.vllm_config,  # 0.11
                state=app.state,
                args=arguments,
                supported_tasks=tasks,
            )
            await needs.settled(filling)
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigurationError(f"vLLM's server refuses its options: {error}") from error
        # In place of uvicorn's: an error handler of vLLM's sets it, and a worker stops itself.
        app.state.server = SimpleNamespace(should_exit=False)
        table = AdapterTable(server_compat.models(app), engine, adapters)
        return cls(app, engine, config, longest_token, table)

    async def respond(self, request: HttpRequest, sink: ChunkSink) -> None:
        """Answer a body.

        Raises:
            EngineDeadError: the engine died under it.
            UnavailableError: there was no room for its media.
        """
        if request.path == EMBEDDINGS:
            await self._embeddings.respond(request, sink, self._respond)
        else:
            await self._respond(request, sink)

    async def _respond(self, request: HttpRequest, sink: ChunkSink) -> None:
        if (recalled := self._recalled(request)) is not None:
            whole = Outline(request.body, "", [])
            if await self._respond_as_known(recalled, request, whole, sink):
                return
        try:
            body, outlined = await check_body(request.body, self._bounds, request.path)
            asked = asked_in(outlined)
            adapter = await self._adapters.hold(asked.model)
        except RequestError as error:
            sink.take(openai_error(400, str(error), error.field))
            return
        is_changed = body is not request.body
        if is_changed:
            request = msgspec.structs.replace(request, body=body)
        # An adapter may have been given a name under which the model itself has answered.
        may_know = self._may_know(request) and not self._adapters.has(asked.model)
        chat = self._chats.read(request, outlined) if may_know else None
        if chat is not None:
            chat.kind.is_checked |= not is_changed
            if recalled is None and await self._respond_as_known(chat, request, outlined, sink):
                return
        answer = self._answer(request, sink)
        answer.shows_prompt = request.path == COMPLETIONS and bool(asked.echo)
        answer.shows_prompt_only = answer.shows_prompt and asked.shows_prompt_only
        answers.set(answer)
        named, learning = self._asked.asked(asked.model), self._chats.learning(chat)
        with adapter, images.charged(), named, learning:
            if request.continuation is not None:
                current.set(Continued.of(request.continuation))
            try:
                if not await self._calls.respond(request, answer, outlined):
                    answer.buffers_role = request.path == CHATS
                    await respond(self._app, request, answer.take)
            except EngineDeadError:
                raise
            except Exception as error:
                if self._engine.errored:
                    raise self._death() from error
                raise
            if answer.is_cut:
                raise self._death()
        self.num_answered += answer.generated_tokens > 0

    def _answer(self, request: HttpRequest, sink: ChunkSink) -> BodyAnswer:
        return BodyAnswer(
            sink,
            self._engine,
            may_be_plain=request.path in self._calls.plain_paths | self._calls.parsed_paths,
            is_parsed=request.path in self._calls.parsed_paths,
            sends_ids=self._sends_ids and request.path in RESUMED,
        )

    def _recalled(self, request: HttpRequest) -> Chat | None:
        """Return a body of a known kind; None if it has to be looked at first."""
        if not self._may_know(request):
            return None
        bounds = self._bounds
        chat = self._chats.recall(request, bounds.max_model_len * bounds.longest or LARGE)
        return None if chat is None or self._adapters.has(chat.model) else chat

    def _may_know(self, request: HttpRequest) -> bool:
        """Tell whether answers to bodies of a request's path can be written as earlier ones."""
        is_plain = request.path == CHATS and CHATS in self._calls.plain_paths
        return is_plain and fast_paths.is_on("direct_calls") and fast_paths.is_on("plain_stream")

    async def _respond_as_known(
        self, chat: Chat, request: HttpRequest, outlined: Outline, sink: ChunkSink
    ) -> bool:
        """Answer a chat as earlier ones were; False if vLLM's server must."""
        try:
            is_answered = await self._chats.respond(chat, sink, self._engine)
        except Exception as error:
            if self._engine.errored:
                raise self._death() from error
            # In the words of vLLM's server, which has the rest of the stream fail.
            failed = FailedStream(self._engine, error)
            answer = self._answer(request, failed)
            answer.engine = failed
            answers.set(answer)
            await self._calls.respond(request, answer, outlined)
            sink.take(HttpChunk(failed.events(), is_last=True))
            is_answered = True
        self.num_answered += is_answered
        return is_answered

    async def _play(
        self,
        request: HttpRequest,
        sink: ChunkSink,
        engine: Any,
        *,
        is_direct: bool,
        is_plain: bool,
        is_known: bool,
    ) -> How:
        """Answer a body by certain fast paths: see `event_trial.BodyServer`."""
        is_parsed = request.path in self._calls.parsed_paths
        is_plain = is_plain and (is_parsed or request.path in self._calls.plain_paths)
        _, outlined = await check_body(request.body, self._bounds)
        chat = self._chats.read(request, outlined) if is_known else None
        if chat is not None and await self._chats.respond(chat, sink, engine):
            return How(is_direct=True, is_plain=True, is_generated=True, is_known=True)
        answer = BodyAnswer(
            sink, engine, may_be_plain=is_plain, is_parsed=is_parsed, sends_ids=False
        )
        answers.set(answer)
        with self._asked.asked(asked_in(outlined).model), self._chats.learning(chat):
            is_direct = is_direct and await self._calls.respond(request, answer, outlined)
            if not is_direct:
                await respond(self._app, request, answer.take)
        return How(is_direct, answer.has_template, answer.num_generations > 0, is_known=False)

    def trial(self, tokenizer: Any, options: Collection[str]) -> Trial:
        """Return the trial of the engine and this application.

        Args:
            tokenizer: the engine's; None if it has none.
            options: of vLLM's server, that the user gave.
        """
        name = self._app.state.args.served_model_name[-1]
        paths = StreamPaths(self._calls.plain_paths, self._calls.parsed_paths)
        return Trial(self._engine, tokenizer, self._play, paths, options, name)

    def _death(self) -> EngineDeadError:
        why = getattr(self._engine, "dead_error", "it does not say why")
        return EngineDeadError(f"vLLM's engine core died: {why}")


def _arguments(server: Any, engine_args: Any, config: EngineConfig) -> Any:
    """Return vLLM's server arguments: its defaults, the engine's, and the user's."""
    arguments = server.argument_parser().parse_args([])
    for name, value in vars(engine_args).items():
        setattr(arguments, name, value)
    arguments.disable_fastapi_docs = True
    for name, value in config.front_end.items():
        if not hasattr(arguments, name):
            problem = f"is not known to the server of vLLM {names.vllm_version}"
            key = f"option.{name}"
            raise OptionError(problem, option=key, value=str(value), origin="vLLM")
        setattr(arguments, name, value)
    given = arguments.served_model_name or [DEFAULT_MODEL_NAME]
    served = [given] if isinstance(given, str) else list(given)
    # Last: answers carry the first of them.
    own = () if config.name in ("", *config.adapters) else (config.name,)
    arguments.served_model_name = list(dict.fromkeys((*served, *own)))
    if plugin := getattr(arguments, "tool_parser_plugin", ""):
        server.import_tool_parser(plugin)
    return arguments
