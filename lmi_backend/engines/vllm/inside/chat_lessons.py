"""Learn from vLLM's own answers to chats what all answers to bodies of one kind have alike."""

from __future__ import annotations

import contextvars
import functools
import inspect
import re
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec

import msgspec

from lmi_backend.engines.vllm.inside import compat, fast_paths, names
from lmi_backend.engines.vllm.inside.event_layouts import ChatLayouts, TextOutput
from lmi_backend.engines.vllm.inside.outputs import length, prompt_length
from lmi_backend.unreadable import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lmi_backend.engines.vllm.inside.short_chats import ShortChats

NAME: Final = "known_chats"
_MOST_EVENTS: Final = 64
"""Of an answer that vLLM's server writes; a plain one has far fewer."""
_OK: Final = 200
_MADE_ID: Final = re.compile(r"(.*-)([0-9a-f]{8,})")
"""An answer's id where the request has none."""
_NO_LIMIT: Final = 1
"""Stands in parameters for the limit of each request."""
EXPECTED: Final = "answers that can be looked at while they are made"
_Given = ParamSpec("_Given")


@dataclass(frozen=True)
class AnswerId:
    """How vLLM's server makes the member `id` of an answer."""

    prefix: str
    digits: int
    """Of the number that it makes up; 0 where the request has an id."""

    @classmethod
    def of(cls, found: str, request_id: str) -> AnswerId | None:
        """Return how an id was made; None if that is not known.

        Args:
            request_id: of the request; empty if it has none.
        """
        if request_id:
            prefix = found.removesuffix(request_id)
            return cls(prefix, 0) if prefix + request_id == found else None
        made = _MADE_ID.fullmatch(found)
        return cls(made[1], len(made[2])) if made else None


@dataclass(frozen=True)
class Learnt:
    """What is the same for all bodies that differ in their messages only."""

    rendering: tuple[tuple[Any, ...], Mapping[str, Any]]
    """Arguments of the renderer besides the messages."""
    params: Any
    """vLLM's, but for the limit of tokens."""
    is_rest: bool
    """Whether an answer may have all tokens that the prompt leaves; else its body has the limit."""
    answer_id: AnswerId
    headers: Mapping[str, str]
    layouts: ChatLayouts
    is_same_when_short: bool = False
    """Whether `ShortChats` makes the same prompts."""

    def merged(self, other: Learnt) -> Learnt | None:
        """Return what two answers tell; None if they differ."""
        content = self.layouts.content or other.layouts.content
        is_same = self.is_same_when_short and other.is_same_when_short
        ours, theirs = (
            replace(
                each,
                layouts=replace(each.layouts, content=content),
                is_same_when_short=is_same,
            )
            for each in (self, other)
        )
        return ours if _is_same(ours, theirs) else None


def _is_same(ours: Any, theirs: Any) -> bool:
    try:
        return bool(ours == theirs)
    except Exception:  # noqa: BLE001  arguments that cannot be compared
        return False


def _noting(
    note: Callable[Concatenate[Lesson, _Given], None],
) -> Callable[Concatenate[Lesson, _Given], None]:
    """Have an answer continue where it cannot be looked at, and turn the path off."""

    @functools.wraps(note)
    def noted(lesson: Lesson, /, *given: _Given.args, **named: _Given.kwargs) -> None:
        try:
            note(lesson, *given, **named)
        except Exception as error:  # noqa: BLE001  it is vLLM's server that answers
            fast_paths.turn_off(NAME, EXPECTED, f"{type(error).__name__}: {error}")

    return noted


class Lesson:
    """One answer of vLLM's server that is looked at while it is made.

    Args:
        messages: of its body.
        request_id: of its request; empty if it has none.
        limit: of tokens in its body; None for all there are.
        max_model_len: most tokens of a prompt and its answer.
    """

    def __init__(
        self,
        messages: list[dict[str, str]],
        request_id: str,
        limit: int | None,
        max_model_len: int,
    ) -> None:
        self._messages, self._request_id = messages, request_id
        self._limit, self._max_model_len = limit, max_model_len
        self._rendering: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self._prompts: list[dict[str, Any]] = []
        self._is_same_when_short = False
        self._is_as_rendered = False
        """Whether the engine got the prompt that was made of the messages, as it was made."""
        self._asked: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self._params: Any = None
        self._outputs: list[TextOutput] = []
        self._events: list[bytes] = []
        self._status, self._headers = 0, dict[str, str]()
        self.num_prompt_tokens = self._num_tokens = 0
        """Of the prompt, and of the answer."""

    @_noting
    def note_rendering(self, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Note a call of vLLM's renderer."""
        is_ours = bool(given) and given[0] == [self._messages]
        self._rendering.append((given[1:] if is_ours else (), named))

    @_noting
    def note_prompts(self, rendered: Any) -> None:
        """Note what the renderer has made, before the server may change it."""
        _, prompts = rendered
        self._prompts += [each | {_IDS: list(each[_IDS])} for each in prompts if _IDS in each]

    @_noting
    def note_short(self, short: ShortChats, rendered: Any) -> None:
        """Note whether what was rendered comes out the same elsewhere."""
        rendering = self._rendering[-1]
        self._is_same_when_short = short.makes_same(self._messages, rendering, rendered)

    @_noting
    def note_call(self, given: tuple[Any, ...], named: dict[str, Any], params: Any) -> None:
        """Note a call of the engine, before it changes any argument."""
        self._asked.append((given, named))
        self._params = copy(params)
        got = named["prompt"] if "prompt" in named else given[0]
        self._is_as_rendered = _is_same(self._prompts, [got])

    @_noting
    def note_output(self, output: Any) -> None:
        """Note an output that vLLM's server gets."""
        self.num_prompt_tokens = prompt_length(output, self.num_prompt_tokens)
        for answer in output.outputs:
            num_new = length(answer.token_ids)
            self._num_tokens += num_new
            is_begun = self._outputs or answer.text or num_new
            if is_begun and len(self._outputs) < _MOST_EVENTS:
                made = TextOutput(answer.text, answer.finish_reason, answer.stop_reason)
                self._outputs.append(made)

    @_noting
    def note_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Note the head of the answer."""
        self._status, self._headers = status, dict(headers)

    @_noting
    def note_event(self, event: bytes) -> None:
        """Note an event that vLLM's server writes."""
        if len(self._events) < _MOST_EVENTS:
            self._events.append(event)

    def learnt(self) -> Learnt | None:
        """Return what is to be learnt; None if anything is unlike what is known."""
        if len(self._rendering) != 1 or len(self._asked) != 1 or self._status != _OK:
            return None
        rendering, named = self._rendering[0]
        call = _call(*self._asked[0])
        stream = _stream_of(self._events)
        if not rendering or call is None or stream is None or not _is_plain(self._params):
            return None
        if call["request_id"] != stream["id"] or not self._is_as_rendered:
            return None
        rest = self._max_model_len - self.num_prompt_tokens
        if self._params.max_tokens != (rest if self._limit is None else self._limit):
            return None
        answer_id = AnswerId.of(stream["id"], self._request_id)
        counts = self.num_prompt_tokens, self._num_tokens
        layouts = ChatLayouts.of(self._events, self._outputs, stream, counts)
        if answer_id is None or layouts is None:
            return None
        params = compat.replaced(copy(self._params), max_tokens=_NO_LIMIT)
        is_rest = self._limit is None
        same = self._is_same_when_short
        return Learnt((rendering, named), params, is_rest, answer_id, self._headers, layouts, same)


def _call(given: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of the engine by name; None if they are for more than an answer."""
    bound = inspect.signature(names.AsyncLLM.generate).bind(None, *given, **named).arguments
    call = dict(list(bound.items())[1:])
    further = {name: each for name, each in call.items() if name not in _USUAL}
    return call if call.keys() >= _USUAL and not any(further.values()) else None


_USUAL: Final = {"prompt", "sampling_params", "request_id"}
_IDS: Final = "prompt_token_ids"


def _is_plain(params: Any) -> bool:
    """Tell whether parameters are those of one answer of text, and of nothing else."""
    wanted = ("logprobs", "prompt_logprobs", "structured_outputs", "guided_decoding", "extra_args")
    is_delta = getattr(params, "output_kind", None) == names.RequestOutputKind.DELTA
    asks_more = any(getattr(params, name, None) not in (None, {}) for name in wanted)
    return is_delta and params.n == 1 and not asks_more


def _stream_of(events: Sequence[bytes]) -> dict[str, Any] | None:
    try:
        first = msgspec.json.decode(events[0].removeprefix(b"data: "))
        return {"id": first["id"], "created": first["created"]}
    except (*UNREADABLE, IndexError, KeyError, TypeError):
        return None


lessons: contextvars.ContextVar[Lesson | None] = contextvars.ContextVar("lessons", default=None)
"""What is learnt from the answer of this task."""
