"""The bytes of the events of a stream, around what differs from one stream to the next.

An event has a layout only if nothing in it could change but what is named here.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmi_backend.unreadable import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PREFIX: Final = b"data: "
_END: Final = b"\n\n"
DONE: Final = b"data: [DONE]\n\n"

Place = tuple[str | int, ...]

STREAM: Final[Mapping[str, Place]] = {"id": ("id",), "created": ("created",)}
"""Where an event has what is the same in all events of its stream."""
TEXT: Final[Mapping[str, Place]] = {"text": ("choices", 0, "delta", "content")}
END: Final[Mapping[str, Place]] = {
    "finish_reason": ("choices", 0, "finish_reason"),
    "stop_reason": ("choices", 0, "stop_reason"),
}
USAGE: Final[Mapping[str, Place]] = {
    name: ("usage", name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")
}
_SAME: Final = frozenset({"object", "model", "index", "role", "system_fingerprint", "service_tier"})
"""Members that are the same in the events of all answers to bodies that differ in messages only."""
_NOTHING: Final[tuple[Any, ...]] = (None, "", [], {})
_encode: Final = msgspec.json.encode


@dataclass(frozen=True)
class EventLayout:
    """One event, with gaps for what changes. `of` makes one."""

    parts: tuple[bytes, ...]
    """The bytes before, between and after the gaps."""
    gaps: tuple[str, ...]

    @classmethod
    def of(cls, event: bytes, values: Mapping[str, tuple[Place, Any]]) -> EventLayout | None:
        """Return the layout of an event; None if it does not tell these values, or tells more.

        Args:
            values: where each gap is, and what stands there now.
        """
        if not (event.startswith(_PREFIX) and event.endswith(_END)):
            return None
        try:
            value = msgspec.json.decode(event[len(_PREFIX) : -len(_END)])
        except UNREADABLE:
            return None
        if _PREFIX + _encode(value) + _END != event:
            return None
        marks = {secrets.token_hex(16): name for name in values}
        for mark, name in marks.items():
            place, expected = values[name]
            if not _replace(value, place, expected, mark):
                return None
        known = (*_NOTHING, *marks)
        if not all(name in _SAME or leaf in known for name, leaf in _all(value)):
            return None
        return _split(_PREFIX + _encode(value) + _END, marks)

    def filled(self, values: Mapping[str, Any]) -> EventLayout:
        """Return the layout with some of its gaps filled."""
        parts, gaps = [self.parts[0]], []
        for name, part in zip(self.gaps, self.parts[1:], strict=True):
            if name in values:
                parts[-1] += _encode(values[name]) + part
            else:
                parts.append(part)
                gaps.append(name)
        return EventLayout(tuple(parts), tuple(gaps))

    def event(self, values: Mapping[str, Any]) -> bytes:
        """Return the event with all of its gaps filled."""
        event = self.parts[0]
        for name, part in zip(self.gaps, self.parts[1:], strict=True):
            event += _encode(values[name]) + part
        return event


def _split(event: bytes, marks: Mapping[str, str]) -> EventLayout:
    places = sorted((event.index(_encode(mark)), mark) for mark in marks)
    parts, end = [], 0
    for start, mark in places:
        parts.append(event[end:start])
        end = start + len(_encode(mark))
    return EventLayout((*parts, event[end:]), tuple(marks[mark] for _, mark in places))


def _replace(value: Any, place: Place, expected: Any, mark: str) -> bool:
    """Put a mark into a value; False if something else stands there."""
    *path, last = place
    try:
        for step in path:
            value = value[step]
        found, value[last] = value[last], mark
    except (KeyError, IndexError, TypeError):
        return False
    return type(found) is type(expected) and bool(found == expected)


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


@dataclass(frozen=True)
class TextOutput:
    """What an output of the engine tells: the text of an event."""

    text: str
    finish_reason: str | None
    stop_reason: str | int | None


@dataclass(frozen=True)
class ChatLayouts:
    """The layouts of all events of a stream. `of` makes them."""

    role: EventLayout
    content: EventLayout | None
    """Of a text after which more follows; None if the stream had one event of text."""
    last: EventLayout
    usage: EventLayout | None
    """None where the client wants none."""

    @classmethod
    def of(
        cls,
        events: Sequence[bytes],
        outputs: Sequence[TextOutput],
        stream: Mapping[str, Any],
        counts: tuple[int, int],
    ) -> ChatLayouts | None:
        """Return the layouts of a stream; None if any event is unlike all that is known.

        Args:
            events: all that were written of these outputs.
            outputs: of the engine.
            stream: the values of `STREAM`.
            counts: tokens of the prompt and of the answer.
        """
        if not outputs or not len(outputs) + 2 <= len(events) <= len(outputs) + 3:
            return None
        own = {name: (place, stream[name]) for name, place in STREAM.items()}
        role, texts, rest = events[0], events[1 : len(outputs) + 1], events[len(outputs) + 1 :]
        found = [_text_layout(event, each, own) for event, each in zip(texts, outputs, strict=True)]
        *middle, last = found
        first = EventLayout.of(role, own)
        usage = _usage_layout(rest[0], counts, own) if len(rest) > 1 else None
        is_whole = len(rest) == 1 or usage is not None
        if first is None or last is None or not is_whole or rest[-1] != DONE:
            return None
        if any(each is None or each != middle[0] for each in middle):
            return None
        if outputs[-1].finish_reason is None or any(each.finish_reason for each in outputs[:-1]):
            return None
        return cls(first, middle[0] if middle else None, last, usage)


Values = dict[str, tuple[Place, Any]]


def _text_layout(event: bytes, output: TextOutput, own: Values) -> EventLayout | None:
    values = own | {"text": (TEXT["text"], output.text)}
    if output.finish_reason is not None:
        values |= {name: (place, getattr(output, name)) for name, place in END.items()}
    return EventLayout.of(event, values)


def _usage_layout(event: bytes, counts: tuple[int, int], own: Values) -> EventLayout | None:
    values = dict(zip(USAGE, (*counts, sum(counts)), strict=True))
    return EventLayout.of(event, own | {name: (USAGE[name], values[name]) for name in USAGE})
