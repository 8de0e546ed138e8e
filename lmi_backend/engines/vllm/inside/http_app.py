"""vLLM's own HTTP application around our engine: OpenAI's bodies are read where they are defined.

Chat templates, tools, reasoning, structured output, log probabilities, usage: all of it is vLLM's.
"""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec

from lmi_backend.clients.openai.paths import CHATS, COMPLETIONS
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
    server_streams,
    tool_calls,
)
from lmi_backend.engines.vllm.inside.adapter_table import AdapterTable
from lmi_backend.engines.vllm.inside.answer import BodyAnswer, current_answer
from lmi_backend.engines.vllm.inside.asked_name import AskedName
from lmi_backend.engines.vllm.inside.chats import Chat, Chats
from lmi_backend.engines.vllm.inside.engine_client import EngineClient
from lmi_backend.engines.vllm.inside.kinds import BodyKind, Kinds
from lmi_backend.engines.vllm.inside.self_test import SelfTest
from lmi_backend.errors import ConfigurationError, EngineDeadError, OptionError, RequestError
from lmi_backend.generation import HttpRequest, openai_error
from lmi_backend.names import DEFAULT_MODEL_NAME
from lmi_backend.outline import LARGE

if TYPE_CHECKING:
    from lmi_backend.engine_config import EngineConfig
    from lmi_backend.engines.protocol import ChunkSink
    from lmi_backend.engines.vllm.inside.grammars import GrammarTrials
    from lmi_backend.engines.vllm.lora import LoraAdapters
    from lmi_backend.outline import Outline

_log = logging.getLogger(__name__)


class HttpApp:
    """vLLM's application, called without a socket. `create` makes one."""

    def __init__(
        self,
        app: Any,
        engine: Any,
        config: EngineConfig,
        longest_token: int,
        adapters: AdapterTable,
        client: EngineClient,
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
        self._adapters = adapters
        tool_calls.attach(app)
        prefill.attach(app)
        self._asked = AskedName(server_compat.models(app), app.state.args.served_model_name)
        self._kinds = Kinds()
        self._chats = Chats(client, self._kinds)
        self._writes_streams = not _is_watched(app, engine.model_config) and fast_paths.probe(
            "own_streams", "servers of chats and completions", lambda: server_streams.attach(app)
        )
        if self._writes_streams:
            self._chats.attach(server_compat.answering(app, CHATS))
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
        client = EngineClient(engine, config.structure_bounds, grammars, adapters)
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
        return cls(app, engine, config, longest_token, table, client)

    async def respond(self, request: HttpRequest, sink: ChunkSink) -> None:
        """Answer a body.

        Raises:
            EngineDeadError: the engine died under it.
            UnavailableError: there was no room for its media.
        """
        answer = await self._respond(request, sink)
        self.num_answered += answer is not None and answer.generated_tokens > 0

    async def _respond(self, request: HttpRequest, sink: ChunkSink) -> BodyAnswer | None:
        """Answer a body; return what was answered, None if the body is refused."""
        recalled = self._recalled(request)
        if recalled is not None:
            answer = self._answer(request, sink)
            if await self._respond_past(recalled, answer):
                return answer
        try:
            body, outlined = await check_body(request.body, self._bounds, request.path)
            asked = asked_in(outlined)
            adapter = await self._adapters.hold(asked.model)
        except RequestError as error:
            sink.take(openai_error(400, str(error), error.field))
            return None
        is_changed = body is not request.body
        if is_changed:
            request = msgspec.structs.replace(request, body=body)
        # An adapter may have been given a name under which the model itself has answered.
        may_know = recalled is None and not self._adapters.has(asked.model)
        chat = self._chats.read(request, outlined) if may_know else None
        answer = self._answer(request, sink, outlined, chat)
        if chat is not None:
            chat.kind.is_checked |= not is_changed
            if await self._respond_past(chat, answer):
                return answer
            answer = self._answer(request, sink, outlined, chat)
        answer.shows_prompt = request.path == COMPLETIONS and bool(asked.echo)
        answer.shows_prompt_only = answer.shows_prompt and asked.shows_prompt_only
        answer.buffers_role = request.path == CHATS
        current_answer.set(answer)
        with adapter, images.charged(), self._asked.asked(asked.model):
            try:
                await respond(self._app, request, answer.take, answer.begin)
            except EngineDeadError:
                raise
            except Exception as error:
                if self._engine.errored:
                    raise self._death() from error
                raise
            if answer.is_cut:
                raise self._death()
        if chat is not None:
            self._chats.note(chat, answer)
        return answer

    def _answer(
        self,
        request: HttpRequest,
        sink: ChunkSink,
        outlined: Outline | None = None,
        chat: Chat | None = None,
    ) -> BodyAnswer:
        def kind() -> BodyKind | None:
            if chat is not None or outlined is None:
                return chat and chat.kind
            return self._kinds.of_body(request.path, outlined.text)

        return BodyAnswer(
            sink,
            self._engine,
            sends_ids=self._sends_ids and request.path in RESUMED,
            continuation=request.continuation,
            kind=kind,
        )

    def _recalled(self, request: HttpRequest) -> Chat | None:
        """Return a body of a known kind; None if it has to be looked at first."""
        if request.path != CHATS:
            return None
        bounds = self._bounds
        chat = self._chats.recall(request, bounds.max_model_len * bounds.longest or LARGE)
        return None if chat is None or self._adapters.has(chat.model) else chat

    async def _respond_past(self, chat: Chat, answer: BodyAnswer) -> bool:
        """Answer a chat past vLLM's server; False if that must."""
        try:
            return await self._chats.respond(chat, answer)
        except Exception as error:
            if self._engine.errored:
                raise self._death() from error
            raise

    def self_test(self, tokenizer: Any) -> SelfTest:
        """Return the test of the engine and this application.

        Args:
            tokenizer: the engine's; None if it has none.
        """
        name = self._app.state.args.served_model_name[-1]
        return SelfTest(
            self._engine, tokenizer, self._respond, name, writes_streams=self._writes_streams
        )

    def _death(self) -> EngineDeadError:
        why = getattr(self._engine, "dead_error", "it does not say why")
        return EngineDeadError(f"vLLM's engine core died: {why}")


def _is_watched(app: Any, model_config: Any) -> bool:
    """Tell whether vLLM's server has to write all streams, because something looks at each."""
    watching = server_compat.watchers(app)
    if getattr(model_config, "is_encoder_decoder", False):
        watching.append("the tokens of an encoder")
    if watching:
        _log.info("vLLM's server writes all streams, for %s", ", ".join(watching))
    return bool(watching)


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
