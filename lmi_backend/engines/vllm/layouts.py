"""The events of a stream, with gaps for what differs from one stream to the next.

vLLM's server writes them once, of made-up outputs (`streams`), so they are those of this
release. An event has a layout only if nothing in it could change but what is named here.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lmi_backend.json_text import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PREFIX: Final = b"data: "
_END: Final = b"\n\n"
DONE: Final = b"data: [DONE]\n\n"

Place = tuple[str | int, ...]

STREAM: Final = ("id", "created")
"""What is the same in all events of a stream."""
USAGE: Final = ("prompt_tokens", "completion_tokens", "total_tokens")
CHAT_TEXT: Final[Place] = ("choices", 0, "delta", "content")
CHAT_DELTA: Final[Place] = ("choices", 0, "delta")
COMPLETION_TEXT: Final[Place] = ("choices", 0, "text")
_SAME: Final = frozenset({"object", "model", "index", "role", "system_fingerprint", "service_tier"})
"""Members that are the same in the events of all answers to bodies that differ in messages only."""
_NOTHING: Final[tuple[Any, ...]] = (None, "", [], {})
_encode: Final = msgspec.json.encode
_MARK: Final = secrets.token_hex(16)


@dataclass(frozen=True)
class EventLayout:
    """One event, with gaps for what changes. `of` makes one."""

    value: Any
    """All of it; what stands in a gap is of the last event that was written."""
    gaps: Mapping[str, Place]

    @classmethod
    def of(cls, event: bytes, values: Mapping[str, tuple[Place, Any]]) -> EventLayout | None:
        """Return the layout of an event; None if it does not tell these values, or tells more.

        Args:
            values: where each gap is, and what stands there now.
        """
        try:
            value = msgspec.json.decode(event.removeprefix(_PREFIX).removesuffix(_END))
            if _event(value) != event:
                return None
            for (*path, last), expected in values.values():
                holder = _at(value, path)
                present, holder[last] = holder[last], None
                if type(present) is not type(expected) or present != expected:
                    return None
        except (*UNREADABLE, KeyError, IndexError, TypeError):
            return None
        if not all(name in _SAME or leaf in _NOTHING for name, leaf in _all(value)):
            return None
        return cls(value, {name: place for name, (place, _) in values.items()})

    def event(self, values: Mapping[str, Any]) -> bytes:
        for name, (*path, last) in self.gaps.items():
            _at(self.value, path)[last] = values[name]
        return _event(self.value)

    def around(self, values: Mapping[str, Any]) -> tuple[bytes, bytes]:
        """Return the bytes before and after what is new, with all other gaps filled."""
        prefix, suffix = self.event({**values, "new": _MARK}).split(_encode(_MARK))
        return prefix, suffix


def _event(value: Any) -> bytes:
    return _PREFIX + _encode(value) + _END


def _at(value: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        value = value[step]
    return value


def _all(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each member that has no members."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _all(each, key)
    elif isinstance(value, list) and value:
        for each in value:
            yield from _all(each, name)
    else:
        yield name, value


class Sample(NamedTuple):
    """An output that vLLM's server wrote an event of."""

    text: str
    finish_reason: str | None


@dataclass(frozen=True)
class StreamLayouts:
    """The layouts of all events of a stream. `of` makes them."""

    role: EventLayout | None
    middle: EventLayout
    last: EventLayout
    usage: EventLayout | None
    """None where the client wants none."""

    @classmethod
    def of(
        cls, events: Sequence[bytes], outputs: Sequence[Sample], counts: tuple[int, int], gap: Place
    ) -> StreamLayouts | None:
        """Return the layouts of a stream; None if any event is unlike all that is known.

        Args:
            counts: tokens of the prompt and of the answer.
            gap: where events have the text, or the delta around it.
        """
        try:
            first = msgspec.json.decode(events[0].removeprefix(_PREFIX))
            own: Values = {name: ((name,), first[name]) for name in STREAM}
        except (*UNREADABLE, IndexError, KeyError, TypeError):
            return None
        is_chat = "delta" in gap
        head, rest = events[:is_chat], events[is_chat:]
        texts, rest = rest[: len(outputs)], rest[len(outputs) :]
        usage = _usage_layout(rest[0], counts, own) if len(rest) > 1 else None
        role = EventLayout.of(head[0], own) if is_chat else None
        if rest[-1:] != [DONE] or len(rest) - (usage is not None) != 1 or is_chat != bool(role):
            return None
        *middles, last = [
            _layout(event, each, own, gap) for event, each in zip(texts, outputs, strict=False)
        ]
        middle = middles[0]
        if middle is None or last is None or any(each != middle for each in middles):
            return None
        return cls(role, middle, last, usage)


Values = dict[str, tuple[Place, Any]]


def _layout(event: bytes, output: Sample, own: Values, gap: Place) -> EventLayout | None:
    value = {"content": output.text} if gap[-1] == "delta" else output.text
    values = own | {"new": (gap, value)}
    if output.finish_reason is not None:
        ends = {"finish_reason": output.finish_reason, "stop_reason": None}
        values |= {name: (("choices", 0, name), each) for name, each in ends.items()}
    return EventLayout.of(event, values)


def _usage_layout(event: bytes, counts: tuple[int, int], own: Values) -> EventLayout | None:
    values = dict(zip(USAGE, (*counts, sum(counts)), strict=True))
    places = own | {name: (("usage", name), each) for name, each in values.items()}
    details = {"reasoning_tokens": (("usage", "completion_tokens_details", "reasoning_tokens"), 0)}
    return EventLayout.of(event, places) or EventLayout.of(event, places | details)
