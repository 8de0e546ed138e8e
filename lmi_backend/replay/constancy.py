"""Compare what stays the same in an answer though it is another one in each answer.

The id of an answer, say: clients join the events of one id.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.replay import kinds
from lmi_backend.replay.framing import UNREAD
from lmi_backend.replay.kinds import Difference
from lmi_backend.replay.roles import nodes

if TYPE_CHECKING:
    from lmi_backend.replay.framing import Event

_TIMES: Final = frozenset({"created", "created_at", "completed_at"})
_CONSTANT: Final = _TIMES | {"id", "request_id", "response_id"}
_OF_ANSWERS: Final = frozenset({"", "response", "message"})
"""Objects whose ids are those of the whole answer."""
_FAR: Final = 10
"""Two times of one unit never differ by this factor."""


def compare_constants(
    was: Iterable[Event], now: Iterable[Event], *, is_stream: bool
) -> Iterator[Difference]:
    """Yield ids that change amid a stream, times of another unit, and calls counted otherwise."""
    old, new = _values(was), _values(now)
    for place in old.keys() & new.keys():
        parent, _, name = place.rpartition(".")
        one, other = old[place], new[place]
        if name in _TIMES and _is_far(one, other):
            yield Difference(kinds.VALUE, place, f"about {one[0]}", f"about {other[0]}")
        if not is_stream:
            continue
        if name in _CONSTANT and parent in _OF_ANSWERS:
            yield from _changes(place, one, other)
        elif place.endswith(".tool_calls[].index"):
            yield from _first(place, one, other)


def _values(events: Iterable[Event]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for event in events:
        for node in nodes(event.value) if event.value is not UNREAD else ():
            if isinstance(node.value, (str, int, float)) and not isinstance(node.value, bool):
                found[node.place].append(node.value)
    return found


def _is_far(was: list[Any], now: list[Any]) -> bool:
    numbers = [each[0] for each in (was, now) if not isinstance(each[0], str)]
    if len(numbers) == 1 or not numbers:
        return False
    least, most = sorted(abs(float(each)) for each in numbers)
    return most > _FAR * least


def _changes(place: str, was: list[Any], now: list[Any]) -> Iterator[Difference]:
    texts = ["one value" if len(set(each)) == 1 else "several values" for each in (was, now)]
    if texts[0] != texts[1] and min(len(was), len(now)) > 1:
        yield Difference(kinds.VALUE, place, *texts)


def _first(place: str, was: list[Any], now: list[Any]) -> Iterator[Difference]:
    """Yield whether calls are counted from another number, however many there are."""
    starts = [min(filter(_is_integer, each), default=None) for each in (was, now)]
    if starts[0] != starts[1]:
        yield Difference(kinds.VALUE, place, *(f"from {each}" for each in starts))


def _is_integer(value: Any) -> bool:
    return isinstance(value, int)
