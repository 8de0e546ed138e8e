"""Answer plain chats without vLLM's server, as it has answered others like them.

Most clients send the same body each time, but for its messages. Then vLLM's server does the same
work each time: it validates the body, makes parameters of it, and writes the same first and last
events. All of that is learnt from its own answers. Two must agree before a third is written here.
What a body may have is listed; a body with anything else, and each error, is left to the server.
"""

from __future__ import annotations

import inspect
import secrets
import sys
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from lmi_backend.engines.body_texts import MOST_ITEMS
from lmi_backend.engines.vllm.inside import (
    compat,
    fast_paths,
    names,
    output_hook,
    seeded_steps,
    short_chats,
)
from lmi_backend.engines.vllm.inside.body_kind import BodyKind
from lmi_backend.engines.vllm.inside.chat_lessons import NAME, Lesson, lessons
from lmi_backend.engines.vllm.inside.continuation import resume_strategy_of
from lmi_backend.engines.vllm.inside.learnt_kinds import LearntKinds
from lmi_backend.engines.vllm.inside.short_chats import ShortChats
from lmi_backend.engines.vllm.inside.streamed_chat import StreamedChat
from lmi_backend.outline import LARGE, Outline
from lmi_backend.unreadable import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lmi_backend.engines.protocol import ChunkSink
    from lmi_backend.engines.vllm.inside.chat_lessons import Learnt
    from lmi_backend.generation import HttpRequest

_MOST_BYTES: Final = 4096
"""Of a body besides its messages."""
ENOUGH: Final = 3
"""Bodies of one kind with different prompts, after which the next one is answered here."""
_MEMBERS: Final = frozenset(
    {
        "model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "temperature",
        "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids", "ignore_eos", "min_tokens",
        "frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias", "n",
        "skip_special_tokens", "spaces_between_special_tokens", "include_stop_str_in_output",
        "logprobs", "tool_choice", "chat_template_kwargs", "user",
    }
)  # fmt: skip
"""Members of a body that change its parameters or its events and nothing else, besides messages."""
_FREE: Final = frozenset({"user"})
"""Strings that change nothing."""
_HEADERS: Final = frozenset({"x-request-id", "content-type"})
"""Headers whose values change nothing but the id."""
_TRUE: Final = b"true"
_NULL: Final = b"null"
_JSON: Final = "application/json"


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    role: Literal["system", "user", "assistant"]
    content: str


_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_messages: Final = msgspec.json.Decoder(list[_Message])
_value: Final = msgspec.json.decode


class Chat(NamedTuple):
    """One body."""

    kind: BodyKind
    messages: list[dict[str, str]]
    request_id: str
    """Empty if it has none."""
    limit: int | None
    model: Any
    """What the body names as its model."""


class KnownChats:
    """What is known of the chats of one engine. `attach` lets it learn.

    Args:
        engine: the AsyncLLM.
        sends_ids: whether chunks carry the ids of their tokens.
    """

    def __init__(self, engine: Any, *, sends_ids: bool) -> None:
        self._sends_ids = sends_ids
        self._max_model_len = engine.model_config.max_model_len
        self._kinds = LearntKinds(BodyKind)
        self._render: Any = None
        self._short: ShortChats | None = None

    def attach(self, server: Any) -> None:
        """See from now on what vLLM's server renders.

        Args:
            server: its part that answers chats.
        """
        if getattr(server, "request_logger", None) is not None:
            why = "enable_log_requests has vLLM's server log each request"
            fast_paths.leave_out(NAME, why)
        fast_paths.probe(
            NAME, "a renderer of chats that can be looked at", lambda: self._attach(server.renderer)
        )

        self._short = short_chats.of(getattr(server, "renderer", None))

    def _attach(self, renderer: Any) -> None:
        self._render = renderer.render_chat_async
        if not inspect.iscoroutinefunction(self._render):
            raise TypeError("render_chat_async is no coroutine")
        renderer.render_chat_async = self._rendering
        if renderer.render_chat_async != self._rendering:
            raise TypeError("render_chat_async cannot be replaced")

    async def _rendering(self, *given: Any, **named: Any) -> Any:
        if (lesson := lessons.get()) is not None:
            lesson.note_rendering(given, named)
        rendered = await self._render(*given, **named)
        if lesson is not None:
            lesson.note_prompts(rendered)
            if self._short is not None:
                lesson.note_short(self._short, rendered)
        return rendered

    def recall(self, request: HttpRequest, most: int) -> Chat | None:
        """Return a body of a known kind, whose members were all looked at in another body.

        Args:
            request: the body.
            most: bytes that all prompts may have.
        """
        if len(request.body) > min(most, LARGE):
            return None
        chat = self.read(request, Outline(request.body, "", []))
        if chat is None or not (chat.kind.is_known and chat.kind.is_checked):
            return None
        return chat if len(chat.messages) <= MOST_ITEMS else None

    def read(self, request: HttpRequest, outlined: Outline) -> Chat | None:
        """Return a body if it is of a kind that can be known, else None.

        Args:
            request: its.
            outlined: the outline of the body.
        """
        may_know = self._render is not None and fast_paths.is_on(NAME)
        if not may_know or request.continuation is not None or outlined.long:
            return None
        headers = {name.lower(): value for name, value in request.headers.items()}
        if headers.keys() - _HEADERS or not _is_json(headers):
            return None
        request_id = headers.get("x-request-id", "")
        try:
            return self._chat(_members.decode(outlined.text), request_id)
        except (*UNREADABLE, KeyError, ValueError):
            return None

    def _chat(self, members: dict[str, msgspec.Raw], request_id: str) -> Chat | None:
        """Return a body as `read` does.

        Raises:
            KeyError, ValueError: it is of no such kind.
        """
        if members.keys() - _MEMBERS != {"messages"} or bytes(members["stream"]) != _TRUE:
            return None
        messages = _messages.decode(members.pop("messages"))
        for name in _FREE & members.keys():
            if not isinstance(_value(members.pop(name)), str):
                return None
        limit = _limit(members)
        others = {name: bytes(raw) for name, raw in members.items()}
        if not messages or sum(map(len, others.values())) > _MOST_BYTES:
            return None
        key = (bool(request_id), *others.items())
        asked = [{"role": each.role, "content": each.content} for each in messages]
        model = _value(members.get("model", _NULL))
        return Chat(self._kinds.of(key), asked, request_id, limit, model)

    @contextmanager
    def learning(self, chat: Chat | None) -> Iterator[None]:
        """Learn from what vLLM's server answers meanwhile, if there is anything to learn."""
        # Many bodies are like no other: nothing is learnt from the first one of a kind.
        if chat is None or chat.kind.was_seen_now() or not chat.kind.may_learn:
            yield
            return
        lesson = Lesson(chat.messages, chat.request_id, chat.limit, self._max_model_len)
        token = lessons.set(lesson)
        chat.kind.num_open += 1
        try:
            yield
            chat.kind.learn(lesson, needs_content=chat.limit != 1)
        finally:
            chat.kind.num_open -= 1
            lessons.reset(token)

    async def respond(self, chat: Chat, sink: ChunkSink, engine: Any) -> bool:
        """Answer a body; False if vLLM's server must: no chunk was made then.

        Raises:
            Exception: what vLLM raises, when some chunks were made.
        """
        learnt = chat.kind.learnt
        if not chat.kind.is_known or learnt is None or not fast_paths.is_on(NAME):
            return False
        prompt, params = await self._prompt(chat, learnt)
        if prompt is None or seeded_steps.is_refused(params):
            return False
        answer_id = learnt.answer_id.prefix + (
            chat.request_id or secrets.token_hex(learnt.answer_id.digits)[: learnt.answer_id.digits]
        )
        writer = StreamedChat(
            learnt.layouts,
            dict(learnt.headers),
            answer_id,
            sends_ids=self._sends_ids and bool(resume_strategy_of(engine, params)),
        )
        arguments = {"params": params, "prompt": prompt, "request_id": answer_id}
        try:
            await output_hook.generate(engine, arguments, writer, sink)
        except Exception:
            if writer.is_begun or engine.errored:
                raise
            return False
        return True

    async def _prompt(self, chat: Chat, learnt: Learnt) -> tuple[Any, Any]:
        """Return vLLM's prompt and parameters; None where its server must see the body."""
        given, named = learnt.rendering
        prompt, failure = None, ""
        if self._short is not None and learnt.is_same_when_short:
            try:
                prompt = await self._short.prompt(chat.messages, learnt.rendering)
            except Exception as error:  # noqa: BLE001  vLLM's thread may refuse it, too
                failure = f"{type(error).__name__}: {error}"
        try:
            if prompt is None:
                _, (prompt,) = await self._render([chat.messages], *given, **named)
                if failure:
                    short_chats.turn_off(failure)
            num_tokens = len(prompt["prompt_token_ids"])
        except Exception:  # noqa: BLE001  its server will say why
            return None, None
        room = self._max_model_len - num_tokens
        limit = room if learnt.is_rest else chat.limit
        params = learnt.params
        if limit is None or not max(1, params.min_tokens) <= limit <= min(room, _most(num_tokens)):
            return None, None
        return prompt, compat.replaced(copy(params), max_tokens=limit)


def _most(num_prompt_tokens: int) -> int:
    """Return the most tokens that vLLM's platform generates after a prompt."""
    bound = getattr(names.current_platform, "get_max_output_tokens", None)
    return sys.maxsize if bound is None else bound(num_prompt_tokens)


def _limit(members: Mapping[str, msgspec.Raw]) -> int | None:
    """Return the limit of tokens in a body; None for all there are.

    Raises:
        ValueError: vLLM may read another number.
    """
    for name in ("max_completion_tokens", "max_tokens"):
        value = _value(members.get(name, _NULL))
        if value is None:
            continue
        if type(value) is not int:
            raise ValueError(name)
        return value
    return None


def _is_json(headers: Mapping[str, str]) -> bool:
    return headers.get("content-type", _JSON).partition(";")[0].strip().lower() == _JSON
