"""vLLM's own HTTP application around our engine: OpenAI's bodies are read where they are defined.

Chat templates, tools, reasoning, structured output, log probabilities, usage: all of it is vLLM's.
"""

from __future__ import annotations

import logging
import os
from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.engines.bodies import BodyBounds, check_body
from lmi_backend.engines.vllm import compat, images, server_compat
from lmi_backend.engines.vllm.answer import Answer, Generation, answers
from lmi_backend.engines.vllm.asgi import respond
from lmi_backend.engines.vllm.continuation import Continued, current
from lmi_backend.engines.vllm.direct_calls import DirectCalls
from lmi_backend.engines.vllm.outputs import NOTHING_FITS
from lmi_backend.errors import ConfigurationError, EngineDeadError, OptionError, RequestError
from lmi_backend.generation import HttpRequest, openai_error
from lmi_backend.names import DEFAULT_MODEL_NAME
from lmi_backend.structures import StructureBounds, check_structures

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping

    from lmi_backend.engine_config import EngineConfig
    from lmi_backend.engines.protocol import ChunkSink
    from lmi_backend.engines.vllm.lora import LoraAdapters

_log = logging.getLogger(__name__)

_OWN_SIZE: Final = 4
_OWN_DEPTH: Final = 16
"""Of what vLLM writes around a client's schema, or makes of a grammar: times, and levels."""

_CONTINUED: Final = frozenset({server_compat.CHATS, "/v1/completions", "/v1/messages"})
"""Paths whose streams can go on: the same tokens make the same events there."""
_HIDDEN: Final = ("VLLM_API_KEY", "CUSTOM_SCRIPT_FILENAME")
"""What the environment must not say to vLLM's server.

Its key would guard some clients' way to the model and not the others'. The file, model.py where it
is not named, is run when the server is built, and LMI's users keep a handler of LMI's there.
"""


class HttpApp:
    """vLLM's application, called without a socket. `create` makes one."""

    def __init__(self, app: Any, engine: Any, config: EngineConfig, longest_token: int) -> None:
        self._app, self._engine, self._sends_ids = app, engine, config.sends_ids
        max_model_len = engine.model_config.max_model_len
        self._bounds = BodyBounds(config.structure_bounds, max_model_len, longest_token)
        self._calls = DirectCalls(app)

    @classmethod
    async def create(
        cls,
        engine: Any,
        engine_args: Any,
        adapters: LoraAdapters,
        config: EngineConfig,
        *,
        longest_token: int = 0,
    ) -> HttpApp:
        """Build the application.

        Args:
            longest_token: its characters; 0 if they are not known.

        Raises:
            OptionError: an option is not one of vLLM's server.
            ConfigurationError: vLLM's server refuses an option's value.
        """
        server = server_compat.http_server()
        server_compat.cut_messages()
        arguments = _arguments(server, engine_args, config)
        client = _CountingClient(engine, _wrapped(config.structure_bounds))
        tasks = await engine.get_supported_tasks()
        with _hidden():
            app = server_compat.call(
                server.build_app,
                args=arguments,
                supported_tasks=tasks,  # 0.16
                model_config=engine.model_config,  # 0.20
            )
        app.state.args = arguments  # as 0.13 and later do
        try:
            await server_compat.call(
                server.init_app_state,
                engine_client=client,
                vllm_config=engine.vllm_config,  # 0.11
                state=app.state,
                args=arguments,
                supported_tasks=tasks,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigurationError(f"vLLM's server refuses its options: {error}") from error
        # An error handler of vLLM's would stop the server through it; a worker stops itself.
        app.state.server = _NoServer()
        # The one table of adapters: what we load or forget is known there at once.
        app.state.openai_serving_models.lora_requests = adapters.known
        return cls(app, engine, config, longest_token)

    async def respond(self, request: HttpRequest, sink: ChunkSink) -> None:
        """Answer a body.

        Raises:
            EngineDeadError: the engine died under it.
        """
        try:
            check_body(request.body, self._bounds)
        except RequestError as error:
            sink.take(openai_error(400, str(error), error.field))
            return
        answer = Answer(
            sink,
            self._engine,
            may_be_plain=request.path in self._calls.plain_paths,
            sends_ids=self._sends_ids and request.path in _CONTINUED,
        )
        answers.set(answer)
        images.budget.set(images.PixelBudget())
        if request.continuation is not None:
            current.set(Continued(request.continuation))
        try:
            if not await self._calls.respond(request, answer):
                answer.holds_role = request.path == server_compat.CHATS
                await respond(self._app, request, answer.take)
        except EngineDeadError:
            raise
        except Exception as error:
            if self._engine.errored:
                raise self._death() from error
            raise
        if answer.is_cut:
            raise self._death()

    def _death(self) -> EngineDeadError:
        return EngineDeadError(f"vLLM's engine core died: {self._engine.dead_error}")


class _NoServer:
    """Stands in for uvicorn's server; nothing reads what is set."""

    should_exit = False


class _CountingClient:
    """The engine, whose generated tokens are counted for the HTTP request they belong to.

    All that vLLM's server asks of it comes through here, so what it compiles is looked at too.
    """

    def __init__(self, engine: Any, bounds: StructureBounds) -> None:
        self._engine, self._bounds = engine, bounds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        params, answer = _params(args, kwargs), answers.get()
        _check(params, self._bounds)
        generation = Generation(self._engine, answer, params) if answer else None
        may_fit_nothing = getattr(params, "structured_outputs", None) is not None
        # Closed with this one: closing is the abort.
        async with aclosing(self._engine.generate(*args, **kwargs)) as outputs:
            async for output in outputs:
                if may_fit_nothing:
                    may_fit_nothing = _has_no_token(output)
                for known in _known(generation):
                    yield known
                if generation is not None:
                    generation.count(output)
                yield output
                if generation is not None:
                    generation.sent(output)


def _known(generation: Generation | None) -> Iterator[Any]:
    """Yield the outputs of what the client of a request that goes on has, once."""
    continued = current.get()
    while continued is not None and continued.outputs:
        output = continued.outputs.popleft()
        if generation is not None:
            generation.count(output, is_known=True)
        yield output


def _has_no_token(output: Any) -> bool:
    """Tell whether an answer with structured outputs has no token yet.

    Raises:
        VLLMClientError: none fits them; vLLM's server would call it a fault of its own.
    """
    answers_of_it = getattr(output, "outputs", ())
    # vLLM hands on the token that it has refused.
    if any(each.finish_reason == "error" for each in answers_of_it):
        raise compat.VLLMClientError(f"structured_outputs {NOTHING_FITS}")
    return not any(each.token_ids for each in answers_of_it)


def _params(args: Any, kwargs: Mapping[str, Any]) -> Any:
    return kwargs.get("sampling_params", args[1] if len(args) > 1 else None)


def _wrapped(bounds: StructureBounds) -> StructureBounds:
    """Return the bounds of what vLLM makes of a client's schemas: it puts them into its own."""
    return replace(
        bounds,
        size=_OWN_SIZE * bounds.size,
        depth=bounds.depth + _OWN_DEPTH,
        repeats=_OWN_SIZE * bounds.repeats,
    )


def _check(params: Any, bounds: StructureBounds) -> None:
    """Check what will be compiled, whichever field of a body it was made of."""
    structures = getattr(params, "structured_outputs", None)
    if structures is None:
        return
    given = {name: value for name, value in vars(structures).items() if value is not None}
    try:
        check_structures(given, bounds)
    except RequestError as error:
        raise compat.VLLMClientError(str(error)) from error


def _arguments(server: Any, engine_args: Any, config: EngineConfig) -> Any:
    """Return vLLM's server arguments: its defaults, the engine's, and the user's."""
    arguments = server.argument_parser().parse_args([])
    for name, value in vars(engine_args).items():
        setattr(arguments, name, value)
    arguments.disable_fastapi_docs = True
    for name, value in config.front_end.items():
        if not hasattr(arguments, name):
            problem = f"is not known to the server of vLLM {compat.vllm_version}"
            key = f"option.{name}"
            raise OptionError(problem, option=key, value=str(value), origin="vLLM")
        setattr(arguments, name, value)
    names = arguments.served_model_name or [DEFAULT_MODEL_NAME]
    served = [names] if isinstance(names, str) else list(names)
    # Last: answers carry the first of them.
    own = () if config.name in ("", *config.adapters) else (config.name,)
    arguments.served_model_name = list(dict.fromkeys((*served, *own)))
    if plugin := getattr(arguments, "tool_parser_plugin", ""):
        server.import_tool_parser(plugin)
    return arguments


@contextmanager
def _hidden() -> Iterator[None]:
    """Hide from vLLM what it must not see."""
    before = {name: os.environ.get(name) for name in _HIDDEN}
    if before["VLLM_API_KEY"]:
        _log.warning("VLLM_API_KEY is ignored: who may ask is for Triton, or what is before it")
    # Empty, not absent: that is a file of no name.
    os.environ.update(dict.fromkeys(_HIDDEN, ""))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
