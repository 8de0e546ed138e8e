"""Compare what members answers have, their types, and the values that must not change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from lmi_backend.migrate import kinds
from lmi_backend.migrate.framing import (
    CHANGING,
    COUNTS,
    FINISHES,
    LOG_PROBABILITIES,
    PARTS,
    Node,
    as_float,
    is_same_vocabulary,
    kind_of,
    nodes,
    quoted,
    walk,
)
from lmi_backend.migrate.kinds import Difference

if TYPE_CHECKING:
    from lmi_backend.migrate.framing import Event

_ABSENT = "absent"
_NUMBERS = frozenset({"integer", "number"})


@dataclass
class _Seen:
    node: Node
    kinds: dict[str, int] = field(default_factory=dict)
    values: list[Any] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(self.kinds.values())

    @property
    def text(self) -> str:
        return " or ".join(sorted(self.kinds))


_Places = dict[str, _Seen]


def _seen(events: Iterable[Event]) -> _Places:
    places: _Places = {}
    for node in walk(events):
        seen = places.setdefault(node.place, _Seen(node))
        if node.is_text:
            # It may have been null in an event before.
            seen.node = node
        kind = kind_of(node.value)
        seen.kinds[kind] = seen.kinds.get(kind, 0) + 1
        seen.values.append(node.value)
    return places


def kinds_of(events: Iterable[Event]) -> dict[str, frozenset[str]]:
    return {place: frozenset(seen.kinds) - {"null"} for place, seen in _seen(events).items()}


def has_log_probabilities(event: Event) -> bool:
    """Return whether an event tells how likely tokens are; it may have no text of them yet."""
    return any(
        node.name == "logprobs" and isinstance(node.value, dict) for node in nodes(event.value)
    )


class Rules(NamedTuple):
    tolerance: float
    has_same_text: bool
    is_stream: bool


def compare_members(
    was: Iterable[Event], now: Iterable[Event], rules: Rules
) -> Iterator[Difference]:
    """Yield members that are missing, new, or of another type, in events of one kind."""
    old, new = _seen(was), _seen(now)
    for place in [*old, *(each for each in new if each not in old)]:
        one, other = old.get(place), new.get(place)
        if not _has_parent(place, old, new):
            continue
        if one is None or other is None:
            is_free = not rules.has_same_text and _may_be_absent(place, one or other, old, new)
            if not place.endswith("[]") and not is_free:
                yield _absent(place, one, other)
            continue
        yield from _types(place, one, other, rules)
        yield from _emptiness(place, one, other, rules)
        if rules.has_same_text or not one.node.follows_text:
            yield from _presence(place, old, new)


def _may_be_absent(place: str, there: _Seen | None, old: _Places, new: _Places) -> bool:
    """Return whether another text is reason enough for a member to be there or not."""
    is_part = there is not None and there.node.name in PARTS
    return is_part or _share(place, old if place in old else new) == "sometimes"


def _presence(place: str, old: _Places, new: _Places) -> Iterator[Difference]:
    was, now = _share(place, old), _share(place, new)
    if was != now and not place.endswith("[]"):
        kind = kinds.MISSING if was == "always" else kinds.ADDED
        yield Difference(kind, place, f"{was} present", f"{now} present")


def _parent(place: str) -> str:
    return place[:-2] if place.endswith("[]") else place.rpartition(".")[0]


def _has_parent(place: str, old: _Places, new: _Places) -> bool:
    parent = _parent(place)
    if place == "":
        return True
    return all(
        parent in each and each[parent].kinds.keys() & {"object", "list"} for each in (old, new)
    )


def _share(place: str, places: _Places) -> str:
    parent = places.get(_parent(place))
    around = parent.kinds.get("object", 0) if parent else 0
    return "always" if places[place].count >= around else "sometimes"


def _absent(place: str, one: _Seen | None, other: _Seen | None) -> Difference:
    there = one or other
    assert there is not None  # noqa: S101  one of both has it
    was, now = (each.text if each else _ABSENT for each in (one, other))
    is_null = set(there.kinds) == {"null"}
    kind = kinds.NULL if is_null else kinds.MISSING if one else kinds.ADDED
    return Difference(kind, place, was, now)


def _types(place: str, one: _Seen, other: _Seen, rules: Rules) -> Iterator[Difference]:
    old, new = set(one.kinds), set(other.kinds)
    if old == new:
        return
    may_vary = one.node.follows_text or one.node.name in FINISHES | PARTS
    if may_vary and not rules.has_same_text and (old & new or "null" in old | new):
        return
    if old - _NUMBERS == new - _NUMBERS and old & _NUMBERS and new & _NUMBERS:
        if not old & new:
            yield Difference(kinds.NUMBER_FORM, place, one.text, other.text)
        return
    yield Difference(kinds.TYPE, place, one.text, other.text)


def _emptiness(place: str, one: _Seen, other: _Seen, rules: Rules) -> Iterator[Difference]:
    if not rules.is_stream or (one.node.follows_text and not rules.has_same_text):
        return
    sizes = [
        {bool(each) for each in seen.values if isinstance(each, list)} for seen in (one, other)
    ]
    if all(len(each) == 1 for each in sizes) and sizes[0] != sizes[1]:
        yield Difference(
            kinds.LENGTH, place, *("some" if True in each else "empty" for each in sizes)
        )


def compare_values(
    was: Iterable[Event], now: Iterable[Event], rules: Rules
) -> Iterator[Difference]:
    """Yield values that differ and must not, and lists of another length."""
    old, new = _seen(was), _seen(now)
    for place in old.keys() & new.keys():
        if rules.is_stream and place == "type":
            # The name of an event, which the order of events has.
            continue
        one, other = old[place], new[place]
        if one.node.is_text or other.node.is_text or _is_another_each_time(one, other):
            continue
        if one.node.follows_text and not rules.has_same_text:
            continue
        yield from _lengths(place, one, other, rules)
        yield from _values(place, one, other, rules)


def _is_another_each_time(one: _Seen, other: _Seen) -> bool:
    """Return whether no value of a member is like that of another answer.

    An id that is a number is that of a token.
    """
    is_of_tokens = one.node.name == "id" and set(one.kinds) == set(other.kinds) == {"integer"}
    return one.node.name in CHANGING and not is_of_tokens


def _lengths(place: str, one: _Seen, other: _Seen, rules: Rules) -> Iterator[Difference]:
    if rules.is_stream:
        return
    was, now = ([len(v) for v in seen.values if isinstance(v, list)] for seen in (one, other))
    if was != now and was and now:
        yield Difference(kinds.LENGTH, place, _numbers(was), _numbers(now))


def _numbers(values: list[int]) -> str:
    return ", ".join(map(str, values[:5])) + (", …" if len(values) > 5 else "")


def _values(place: str, one: _Seen, other: _Seen, rules: Rules) -> Iterator[Difference]:
    was, now = (_leaves(seen.values) for seen in (one, other))
    if not was or not now:
        return
    name = one.node.name
    if any(isinstance(value, float) for value in (*was, *now)) or name in LOG_PROBABILITIES:
        yield from _floats(place, name, was, now, rules)
        return
    if rules.is_stream:
        # Of several answers, tokens come in any order.
        was, now = (sorted(was), sorted(now)) if name == "id" else (_whole(was), _whole(now))
    if was == now:
        return
    kind = kinds.USAGE if name in COUNTS else kinds.VALUE
    if name in FINISHES:
        pairs = zip(was, now, strict=False)
        if not rules.has_same_text and all(is_same_vocabulary(str(a), str(b)) for a, b in pairs):
            return
        kind = kinds.FINISH
    yield Difference(
        kind, place, *(quoted(each[0] if len(each) == 1 else each) for each in (was, now))
    )


def _leaves(values: list[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, (str, int, float))]


def _whole(values: list[Any]) -> list[Any]:
    """Return what a stream says in all, however many events say it: its top number, each text.

    Counts and numbers of choices grow; several choices come in any order.
    """
    numbers = [value for value in values if not isinstance(value, (str, bool))]
    others = {value for value in values if isinstance(value, (str, bool))}
    return [*sorted(others, key=str), *([max(numbers)] if numbers else [])]


def _floats(
    place: str, name: str, was: list[Any], now: list[Any], rules: Rules
) -> Iterator[Difference]:
    pairs = [
        (as_float(a), as_float(b))
        for a, b in zip(was, now, strict=False)
        if not isinstance(a, (str, bool)) and not isinstance(b, (str, bool))
    ]
    far = [(abs(a - b), a, b) for a, b in pairs if abs(a - b) > rules.tolerance]
    if far:
        _, a, b = max(far)
        kind = kinds.LOG_PROBABILITY if name in LOG_PROBABILITIES else kinds.NUMBER
        yield Difference(kind, place, f"{a:g}", f"{b:g}")
