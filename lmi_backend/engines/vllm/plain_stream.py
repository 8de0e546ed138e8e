"""Write the middle of a plain stream of OpenAI's without vLLM's server.

vLLM's server writes the first event of an answer, the last ones, and everything of an answer that
is not plain. It takes an output, a validated object, its JSON and a chain of generators for each
event. Between the first and the last event of a plain stream nothing changes but the text: the
first one is the pattern of those, and vLLM's detokeniser has the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from lmi_backend.engines.protocol import Deferring
from lmi_backend.engines.vllm.new_tokens import read_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

_PREFIX: Final = b"data: "
_KEYS: Final = (b'"content":', b'"text":')
"""The member that has the text, of chats and of completions."""
_encode = msgspec.json.encode


class _Delta(msgspec.Struct, forbid_unknown_fields=True):
    content: str


class _Choice(msgspec.Struct, forbid_unknown_fields=True):
    """Of an event that tells a text and nothing else; what vLLM adds some day is unknown here."""

    index: int
    delta: _Delta | None = None
    text: str | None = None
    logprobs: None = None
    finish_reason: None = None
    stop_reason: None = None
    token_ids: None = None
    prompt_token_ids: None = None


class _Event(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    object: str
    created: int
    model: str
    choices: tuple[_Choice]


_decoder: Final = msgspec.json.Decoder(_Event)


class Pattern:
    """The bytes of an event before and after its text. `of` makes one."""

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before, self._after = before, after

    @classmethod
    def of(cls, event: bytes, text: str) -> Pattern | None:
        """Return the pattern of an event that tells a text, or None if it tells more."""
        try:
            (choice,) = _decoder.decode(event.removeprefix(_PREFIX)).choices
        except msgspec.DecodeError:
            return None
        if text != (choice.delta.content if choice.delta else choice.text):
            return None
        key = _KEYS[choice.delta is None]
        # Inside a string its quotes would be escaped.
        before, found, rest = event.partition(key + _encode(text))
        pattern = cls(before + key, rest)
        return pattern if found and pattern.event(text) == event else None

    def event(self, text: str) -> bytes:
        """Return the event that tells another text."""
        return self._before + _encode(text) + self._after


class EventSink(Deferring, Protocol):
    """Takes the events of an answer."""

    def take_event(self, event: bytes, ids: Sequence[int]) -> None:
        """Take an event that tells new tokens."""
        ...


class Middle:
    """Stands where a RequestState of vLLM makes outputs, and writes events instead.

    The last output is made by vLLM, and has the ids of all tokens since this one stands there: the
    server counts them.

    Args:
        state: the request's, in vLLM. An output of it that waits to be taken is written at once.
        pattern: of its events.
        answer: takes them.
        interval: fewest tokens of an event.
        unsent: ids of tokens that came before, of which vLLM has made no output.
    """

    def __init__(
        self,
        state: Any,
        pattern: Pattern,
        answer: EventSink,
        interval: int = 1,
        unsent: Sequence[int] = (),
    ) -> None:
        self._pattern, self._take, self._defer = pattern, answer.take_event, answer.defer
        self._state = state
        self._text = state.detokenizer.get_next_output_text
        self._make = state.make_request_output
        self._decode = read_tokens(state, self._add).decode
        self._interval = interval
        self._ids: list[int] = []
        self.num_sent = 0
        """Tokens whose events were written."""
        state.make_request_output = self._make_output
        if (waiting := state.queue.get_nowait()) is not None:
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
        new, self.num_sent = self._ids[self.num_sent :], len(self._ids)
        self._take(self._pattern.event(text), new)
