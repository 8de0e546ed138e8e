"""Plain chats whose bodies differ in their messages alone, answered past vLLM's server.

Most clients send the same body each time, but for its messages. Of the first one vLLM's server
makes the parameters, the arguments of its renderer and the layout of its events. The next ones need
a prompt and nothing else. A body with anything that is not listed here, and each error, is left to
the server.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
import sys
import time
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from lmi_backend.clients.openai import CHATS
from lmi_backend.clients.spec import RETRYABLE
from lmi_backend.engines.vllm import compat, fast_paths, names
from lmi_backend.engines.vllm.bodies import (
    LIMITS,
    NULL,
    BodyKind,
    Call,
    Kinds,
    Rendering,
    SeenRenderer,
    Template,
)
from lmi_backend.engines.vllm.requests import status_of
from lmi_backend.engines.vllm.streams import StreamWriter, write
from lmi_backend.generation import HttpChunk
from lmi_backend.json_text import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.engines.bodies import CheckedBody
    from lmi_backend.engines.vllm.bodies import BodyAnswer, EngineClient
    from lmi_backend.generation import HttpRequest

# vLLM's renderer makes each prompt in two calls of one thread: the template, then the tokens. Of
# many chats that come at once, all templates are ahead of the first tokens. So the engine gets no
# chat before nearly all are done. The thread and the loop also wait for each other. Here vLLM's own
# function renders a few chats a turn of the loop.

_log = logging.getLogger(__name__)

Messages = list[dict[str, str]]

MOST_CHARACTERS: Final = 2048
"""Of a chat: its tokens take 1 ms. Those of a longer one take longer than a thread does."""
MOST_MESSAGES: Final = 64
_A_TURN: Final = 2
"""Chats that are rendered before others have their turn."""
_MOST_SECONDS: Final = 0.02
"""Of CPU that a chat may take: others wait meanwhile. Most take less than 1 ms."""
_ARRIVAL: Final = "arrival_time"
"""Member of a prompt that is no other's."""


class ShortChats:
    """Renders short chats of one engine."""

    def __init__(self, renderer: Any) -> None:
        self._render = getattr(renderer, "render_chat", None)
        if inspect.iscoroutinefunction(self._render):
            self._render = None
        self._waiting: list[tuple[asyncio.Future[Any], Messages, Rendering]] = []

    def makes_same(self, messages: Messages, rendering: Rendering) -> bool:
        """Tell whether a chat is rendered here as vLLM's server has it, and soon enough."""
        if self._render is None or not _is_short(messages):
            return False
        began = time.thread_time()
        try:
            ours, (theirs,) = self._prompt(messages, rendering), rendering.prompts
            is_same = bool(_timeless(ours) == _timeless(theirs))
        except Exception as error:  # noqa: BLE001  vLLM's thread is there
            _log.debug("short chats are rendered by vLLM's thread: %s", error)
            return False
        return is_same and time.thread_time() - began <= _MOST_SECONDS

    async def prompt(self, messages: Messages, rendering: Rendering) -> Any:
        """Return the prompt of a chat; None where it is too long. Raises what vLLM does."""
        if not _is_short(messages):
            return None
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._turn)
        prompt: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((prompt, messages, rendering))
        return await prompt

    def _turn(self) -> None:
        for prompt, messages, rendering in self._waiting[:_A_TURN]:
            if prompt.done():  # its client has left
                continue
            try:
                prompt.set_result(self._prompt(messages, rendering))
            except Exception as error:  # noqa: BLE001  it is this chat's
                prompt.set_exception(error)
        del self._waiting[:_A_TURN]
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)

    def _prompt(self, messages: Messages, rendering: Rendering) -> Any:
        _, (prompt,) = self._render([messages], *rendering.given, **rendering.named)  # type: ignore[misc]
        return prompt


def _is_short(messages: Messages) -> bool:
    characters = sum([len(each["content"]) for each in messages[:MOST_MESSAGES]])
    return len(messages) <= MOST_MESSAGES and characters <= MOST_CHARACTERS


def _timeless(prompt: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in prompt.items() if name != _ARRIVAL}


_MEMBERS: Final = frozenset(
    {
        "model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "temperature",
        "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids", "ignore_eos", "min_tokens",
        "frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias", "n",
        "skip_special_tokens", "spaces_between_special_tokens", "include_stop_str_in_output",
        "logprobs", "tools", "tool_choice", "chat_template_kwargs", "user",
    }
)  # fmt: skip
"""Members of a body that change its parameters or its events and nothing else, besides messages."""
_HEADERS: Final = frozenset({"x-request-id", "content-type"})
"""Headers whose values change nothing but the id."""
_LARGE: Final = 1 << 18
"""Bytes of a body whose members take long to look at."""
_TRUE: Final = b"true"
_PREFIX: Final = "chatcmpl-"
"""Of the ids of answers."""
_JSON: Final = "application/json"
_NO_LIMIT: Final = sys.maxsize


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    role: Literal["system", "user", "assistant"]
    content: str


_PLAIN: Final = list[_Message]
_value: Final = msgspec.json.decode


class Chat(NamedTuple):
    """One body that may be answered past the server."""

    kind: BodyKind
    messages: Messages
    request_id: str
    """Empty if it has none."""
    limit: int | None


class Chats:
    """The plain chats of one engine."""

    def __init__(self, client: EngineClient, kinds: Kinds) -> None:
        self._client = client
        self._max_model_len = client.engine.model_config.max_model_len
        self._kinds = kinds
        self._server: Any = None
        self._render: Any = None
        self._short: ShortChats | None = None

    def attach(self, server: Any) -> None:
        """See from now on what vLLM's server renders."""
        is_logged = getattr(server, "request_logger", None) is not None
        if server is None or is_logged:  # each body is logged there
            return
        try:
            self._attach(server.renderer)
        except (AttributeError, TypeError) as error:  # before 0.16
            _log.warning("vLLM's server reads every chat, for more CPU: %s", error)
            return
        self._server, self._short = server, ShortChats(server.renderer.own)

    def _attach(self, renderer: Any) -> None:
        if type(renderer) is not SeenRenderer:
            raise TypeError(f"it has its own {type(renderer).__name__}")
        if not inspect.iscoroutinefunction(renderer.own.render_chat_async):
            raise TypeError("render_chat_async is no coroutine")
        self._render = renderer.own.render_chat_async

    def read(self, request: HttpRequest, body: CheckedBody) -> Chat | None:
        """Return a body if it may be answered past the server, else None."""
        is_large, members = len(request.body) > _LARGE, body.members
        if self._server is None or request.path != CHATS or is_large or members is None:
            return None
        headers = {name.lower(): value for name, value in request.headers.items()}
        if headers.keys() - _HEADERS or not _is_json(headers):
            return None
        try:
            if members.keys() - _MEMBERS != {"messages"} or bytes(members["stream"]) != _TRUE:
                return None
            msgspec.convert(messages := body.fields.get("messages"), _PLAIN)
            limit = _limit(members)
            is_free = isinstance(_value(members.get("user", b'""')), str)
        except (*UNREADABLE, KeyError, ValueError):
            return None
        if not (messages and is_free):
            return None
        request_id = headers.get("x-request-id", "")
        kind = self._kinds.of(CHATS, members, has_id=bool(request_id))
        return Chat(kind, messages, request_id, limit)

    def note(self, chat: Chat, answer: BodyAnswer) -> None:
        """Note what vLLM's server has made of a body, if it was answered by a stream of our own."""
        call, kind = answer.call, chat.kind
        if call is None or kind.layouts is None or len(answer.renderings) != 1:
            return
        (rendering,) = answer.renderings
        arguments = call.arguments()
        prompt, params = arguments.pop("prompt"), arguments.pop("params")
        request_id = arguments.pop("request_id")
        is_usual = len(rendering.prompts) == 1 and prompt is rendering.prompts[0]
        if any(arguments.values()) or not is_usual or not _is_plain(params):
            return
        rest = self._max_model_len - len(prompt["prompt_token_ids"])
        has_default = getattr(self._server, "default_sampling_params", {}).get("max_tokens")
        is_rest = chat.limit is None and not has_default
        if params.max_tokens != (rest if is_rest else chat.limit):
            return
        own_id = request_id.removeprefix(_PREFIX)
        if own_id == request_id or own_id != (chat.request_id or own_id):
            return
        is_short = self._short is not None and self._short.makes_same(chat.messages, rendering)
        # It keeps its body, which is small: that of any other kind may hold images.
        kind.server = answer.server
        kind.template = Template(
            params=compat.replaced(params, max_tokens=_NO_LIMIT),
            rendering=rendering._replace(prompts=()),
            is_rest=is_rest,
            head=answer.head,
            digits=len(own_id),
            is_short=is_short,
        )

    async def respond(self, chat: Chat, answer: BodyAnswer) -> bool:
        """Answer a body; False if vLLM's server must: no chunk was made then.

        Raises:
            Exception: the engine is dead, or takes no more now.
        """
        kind = chat.kind
        template, layouts = kind.template, kind.layouts
        is_on = fast_paths.is_on("own_streams")
        if (
            template is None
            or layouts is None
            or not is_on
            or template.is_rest != (chat.limit is None)
        ):
            return False
        prompt, params = await self.prompt(chat, template)
        if prompt is None:
            return False
        try:
            parser = kind.server.parsers and kind.server.parsers(chat.messages)
        except Exception:  # noqa: BLE001  its server will say why
            return False
        own_id = chat.request_id or secrets.token_hex(template.digits)[: template.digits]
        answer_id = _PREFIX + own_id
        given = {"prompt": prompt, "sampling_params": params, "request_id": answer_id}
        call = Call(self._client, answer, given)
        writer = StreamWriter(
            layouts,
            template.head,
            answer_id,
            sends_ids=answer.may_send_ids(params),
            parser=parser,
        )
        error = await write(call, writer)
        if error is None:
            return True
        if not writer.is_begun:
            if status_of(error) in RETRYABLE:
                # vLLM's server would ask the engine once more.
                raise error
            # vLLM's server says what is wrong with the body.
            return False
        for event in kind.server.failure(error):
            answer.take(HttpChunk(event.encode()))
        answer.take(HttpChunk(is_last=True))
        return True

    async def prompt(self, chat: Chat, template: Template) -> tuple[Any, Any]:
        """Return vLLM's prompt and parameters; None where its server must see the body."""
        rendering, prompt = template.rendering, None
        try:
            if template.is_short and self._short is not None:
                prompt = await self._short.prompt(chat.messages, rendering)
            if prompt is None:
                _, (prompt,) = await self._render(
                    [chat.messages], *rendering.given, **rendering.named
                )
            num_tokens = len(prompt["prompt_token_ids"])
        except Exception:  # noqa: BLE001  its server will say why
            return None, None
        room = self._max_model_len - num_tokens
        limit = room if template.is_rest else chat.limit
        params = template.params
        if limit is None or not max(1, params.min_tokens) <= limit <= min(room, _most(num_tokens)):
            return None, None
        return prompt, compat.replaced(params, max_tokens=limit)


def _is_plain(params: Any) -> bool:
    wanted = ("structured_outputs", "extra_args")
    return not any(getattr(params, name, None) for name in wanted)


def _most(num_prompt_tokens: int) -> int:
    bound = getattr(names.current_platform, "get_max_output_tokens", None)
    return sys.maxsize if bound is None else bound(num_prompt_tokens)


def _limit(members: Mapping[str, msgspec.Raw]) -> int | None:
    """Return the limit of tokens in a body; None for all there are.

    Raises:
        ValueError: vLLM may read another number.
    """
    for name in LIMITS:
        value = _value(members.get(name, NULL))
        if value is None:
            continue
        if type(value) is not int:
            raise ValueError(name)
        return value
    return None


def _is_json(headers: Mapping[str, str]) -> bool:
    return headers.get("content-type", _JSON).partition(";")[0].strip().lower() == _JSON
