"""Write the middle of a plain stream of OpenAI's without vLLM's server.

vLLM's server writes the first event of an answer, the last ones, and everything of an answer that
is not plain. It takes an output, a validated object, its JSON and a chain of generators for each
event. Between the first and the last event of a plain stream nothing changes but the text: the
first one is the template of those, and vLLM's detokeniser has the text.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec

from lmi_backend.engines.vllm.inside import fast_paths, idle
from lmi_backend.engines.vllm.inside.token_reader import read_tokens
from lmi_backend.generation import HttpChunk
from lmi_backend.token_ids import pack
from lmi_backend.unreadable import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lmi_backend.engines.protocol import ChunkSink

_PREFIX: Final = b"data: "
_KEYS: Final = (b'"content":', b'"text":')
"""The member that has the text, of chats and of completions."""
_encode = msgspec.json.encode


_CONSTANT: Final = frozenset({"id", "object", "created", "model", "index"})
"""Members that are the same in all events of a stream."""
_BESIDES_TEXT: Final = frozenset(
    {"logprobs", "finish_reason", "stop_reason", "token_ids", "prompt_token_ids"}
)  # fmt: skip
"""Members that tell more than the text, unless they are null."""
_OF_ALL_EVENTS: Final = frozenset({"system_fingerprint", "service_tier"})
"""Further members that OpenAI's API has the same in all events of a stream."""
_NOTHING: Final = frozenset({"null", "[]", "{}", '""'})

_ASKED_FOR: Final = frozenset(
    {
        "annotations", "audio", "ec_transfer_params", "function_call", "kv_transfer_params",
        "metrics", "prompt_logprobs", "prompt_text", "reasoning", "reasoning_content", "refusal",
        "role", "tool_calls", "usage", "weight_versions",
    }
)  # fmt: skip
"""Members of the releases that were run, which are in the events of some requests."""

Members = frozenset[tuple[str, str]]
"""Further members of an event, each with its value as JSON."""
further: Members = frozenset()
"""Members that this vLLM writes into each event besides those above, as `trial` has seen."""


class Template:
    """The bytes of an event before and after its text. `of` makes one."""

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before, self._after = before, after

    @classmethod
    def of(cls, event: bytes, text: str) -> Template | None:
        """Return the template of an event that tells a text, or None if it tells more."""
        read = _read(event)
        if read is None or read.text != text or not read.further <= further:
            return None
        # Inside a string its quotes would be escaped.
        before, found, rest = event.partition(read.key + _encode(text))
        template = cls(before + read.key, rest)
        return template if found and template.event(text) == event else None

    def event(self, text: str) -> bytes:
        """Return the event that tells another text."""
        return self._before + _encode(text) + self._after


class EventTemplate(Protocol):
    """Makes the events of one stream."""

    def event(self, value: Any, /) -> bytes:
        """Return the event that tells something."""
        ...


class _Read(NamedTuple):
    text: str
    key: bytes
    further: Members


def further_members(event: bytes) -> Members | None:
    """Return what an event of a text has besides the known members; None of other events."""
    read = _read(event)
    if read is None:
        # What a parser tells is no content, perhaps.
        return beside_delta(event)
    return read.further if read.text else None


def unknown_members(event: bytes, text: str) -> dict[str, str]:
    """Return what keeps an event that tells a text from being a template, if no release had it."""
    read = _read(event)
    if read is None or not text or read.text != text:
        return {}
    return unknown_of(read.further)


def is_same_in_all(name: str, value: str) -> bool:
    """Tell whether a further member is surely the same in all events that tell a text.

    What an unknown one tells may change after any of them.

    Args:
        value: as JSON.
    """
    return value in _NOTHING or name in _OF_ALL_EVENTS


def common_and_changing(events: Iterable[bytes]) -> tuple[Members, frozenset[str]]:
    """Return the further members that all events of texts have, and the names of the others."""
    found = [members for each in events if (members := further_members(each)) is not None]
    common = frozenset.intersection(*found) if found else frozenset()
    return common, frozenset(name for members in found for name, _ in members - common)


def beside_delta(event: bytes) -> Members | None:
    """Return what an event of a chat has besides its delta and the known members.

    None if a known one tells more than the delta, or if it is another event.
    """
    try:
        value, choice = _of_one_choice(event)
        del choice["delta"]
    except _NOT_PLAIN:
        return None
    return _others(value, choice)


def unknown_of(members: Members) -> dict[str, str]:
    """Return those further members that no release had."""
    return {name: value for name, value in members - further if name not in _ASKED_FOR}


def _read(event: bytes) -> _Read | None:
    """Read an event of one choice that tells a text; None if it tells more that is known."""
    try:
        value, choice = _of_one_choice(event)
        delta = choice.pop("delta", None)
        text = choice.pop("text") if delta is None else delta.pop("content")
        others = _others(value, choice, delta or {})
    except _NOT_PLAIN:
        return None
    if not isinstance(text, str) or others is None:
        return None
    return _Read(text, _KEYS[delta is None], others)


_NOT_PLAIN: Final = (*UNREADABLE, AttributeError, KeyError, TypeError, ValueError)


def _of_one_choice(event: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the members of an event besides its choice, and those of the choice."""
    value = msgspec.json.decode(event.removeprefix(_PREFIX), type=dict[str, Any])
    (choice,) = value.pop("choices")
    return value, choice


def _others(*parts: dict[str, Any]) -> Members | None:
    """Return the members that are not known; None if a known one tells more than the text."""
    members = [item for part in parts for item in part.items() if item[0] not in _CONSTANT]
    if any(name in _BESIDES_TEXT and each is not None for name, each in members):
        return None
    return frozenset(
        (name, _encode(each).decode()) for name, each in members if name not in _BESIDES_TEXT
    )


class TemplatedEvents:
    """Replaces the part of a RequestState of vLLM that makes outputs, and writes events instead.

    vLLM makes the last output. It has the ids of all tokens since this replacement: the server
    counts them.

    Args:
        state: the request's, in vLLM. Outputs that wait for their reader are written at once.
        template: of its events.
        sink: takes them.
        interval: fewest tokens of an event, and the ids of earlier tokens that no output of vLLM
            has, as `compat.take_interval` returns them.
        num_prompt_tokens: length of the prompt.
        sends_ids: whether events carry the ids of their tokens.
    """

    def __init__(
        self,
        state: Any,
        template: EventTemplate,
        sink: ChunkSink,
        interval: tuple[int, Sequence[int]] = (1, ()),
        *,
        num_prompt_tokens: int = 0,
        sends_ids: bool = False,
    ) -> None:
        self._template, self._take, self._defer = template, sink.take, sink.defer
        self._num_prompt_tokens, self._sends_ids = num_prompt_tokens, sends_ids
        self._state, self._thread = state, threading.get_ident()
        self._text = state.detokenizer.get_next_output_text
        self._make = state.make_request_output
        self._decode = read_tokens(state, self._add).decode
        self._interval, unsent = interval
        self._ids: list[int] = []
        self.num_sent = 0
        """Tokens whose events were written."""
        self.is_over = False
        """Whether vLLM's server writes what comes after its next output."""
        self.held: list[Any] = []
        """Outputs of vLLM that its server gets before the next one."""
        state.make_request_output = self._make_output
        # A release may keep several outputs, and have them one by one.
        while (waiting := state.queue.get_nowait()) is not None:
            self._write(waiting.outputs[0].text, waiting.outputs[0].token_ids)
        self._ids += unsent

    def _make_output(
        self,
        new_token_ids: Sequence[int],
        pooling_output: Any,
        finish_reason: Any,
        *more: Any,
        **named: Any,
    ) -> Any:
        """Return vLLM's output of the end of the answer, else None; the names are vLLM's."""
        if threading.get_ident() != self._thread:
            # vLLM's server writes the rest of this answer, and all of others.
            fast_paths.turn_off("plain_stream", idle.ONE_THREAD, "outputs of another thread")
            ids, self._ids = [*self._ids, *new_token_ids], []
            self._state.make_request_output, self.is_over = self._make, True
            return self._make(ids, pooling_output, finish_reason, *more, **named)
        if finish_reason is None:
            self._add(new_token_ids)
            return None
        # An abort comes between tokens.
        self._decode()
        # None are left for a flush that comes later.
        ids, self._ids = [*self._ids, *new_token_ids], []
        return self._make(ids, pooling_output, finish_reason, *more, **named)

    def _add(self, new_token_ids: Sequence[int]) -> None:
        self._ids.extend(new_token_ids)
        num_new = len(self._ids) - self.num_sent
        if num_new >= self._interval and not self._defer(self._flush, num_new):
            self._flush()

    def _flush(self) -> None:
        try:
            if len(self._ids) > self.num_sent:
                self._decode()
                self._write(self._text(finished=False, delta=True))
        except Exception as error:  # noqa: BLE001  it must not end the other requests
            self._state.queue.put(error)

    def _write(self, text: str, ids: Sequence[int] = ()) -> None:
        self._ids.extend(ids)
        if not (event := self._event(text)):
            return
        new, self.num_sent = self._ids[self.num_sent :], len(self._ids)
        self._take(
            HttpChunk(
                event,
                num_tokens=len(new),
                num_prompt_tokens=self._num_prompt_tokens,
                ids=pack(new) if self._sends_ids else b"",
            )
        )

    def _event(self, text: str) -> bytes:
        """Return the event of a text; nothing if its tokens leave with those that come next."""
        return self._template.event(text)
