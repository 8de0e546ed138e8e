"""Judge an answer by another one: everything in which a client could see a difference."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from lmi_backend.migrate import kinds
from lmi_backend.migrate.framing import (
    DONE,
    FINISHES,
    UNREAD,
    Event,
    Framed,
    framed,
    is_greedy,
    nodes,
    quoted,
)
from lmi_backend.migrate.kinds import Difference
from lmi_backend.migrate.structure import (
    Rules,
    compare_members,
    compare_values,
    has_log_probabilities,
    kinds_of,
)
from lmi_backend.migrate.texts import are_equal, compare_texts, texts_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from lmi_backend.migrate.records import RecordedAnswer, Request

TOLERANCE: Final = 0.05
"""By how much log probabilities and other numbers may differ."""
_READ: Final = ("x-*", "retry-after", "www-authenticate", "allow", "location", "openai-*")
"""Headers that clients read, besides the content type."""
_OF_PROXIES: Final = ("x-envoy-*", "x-amzn-trace-id", "x-amz-cf-*", "x-cache*", "x-forwarded-*")
_BLANKS: Final = "\r\n\t "
_PING: Final = "ping"
"""Anthropic's event that only keeps a connection open."""


class Judge(NamedTuple):
    tolerance: float = TOLERANCE
    ignored: Sequence[str] = ()
    """Patterns `KIND:PLACE` of differences that are accepted."""

    def differences(
        self, request: Request, was: RecordedAnswer, now: RecordedAnswer
    ) -> list[Difference]:
        by_key = {each.key: each for each in self._all(request, was, now)}
        return [each for each in by_key.values() if not self._is_ignored(each)]

    def _is_ignored(self, difference: Difference) -> bool:
        name = f"{difference.kind}:{difference.place}"
        # The brackets of a place are no pattern's.
        return any(fnmatch.fnmatchcase(name, each.replace("[", "[[]")) for each in self.ignored)

    def _all(
        self, request: Request, was: RecordedAnswer, now: RecordedAnswer
    ) -> Iterator[Difference]:
        if was.error or now.error:
            if was.error != now.error:
                yield Difference(
                    kinds.UNANSWERED, "", was.error or "answered", now.error or "answered"
                )
            return
        if was.status is not None and was.status != now.status:
            # All else follows.
            yield Difference(kinds.STATUS, "", str(was.status), str(now.status))
            return
        yield from _headers(request, was, now)
        yield from self._bodies(request, was, now)

    def _bodies(
        self, request: Request, was: RecordedAnswer, now: RecordedAnswer
    ) -> Iterator[Difference]:
        old, new = (
            each._replace(events=[event for event in each.events if _name(event) != _PING])
            for each in (framed(was), framed(now))
        )
        if old.kind != new.kind:
            kind = kinds.FRAMING if old.is_stream or new.is_stream else kinds.BODY
            yield Difference(kind, "", old.kind, new.kind)
            return
        yield from _marks(old, new)
        is_wanted = is_greedy(request)
        if old.kind == "text":
            if is_wanted and was.body.strip() != now.body.strip():
                texts = (quoted(body.decode("utf-8", "replace")) for body in (was.body, now.body))
                yield Difference(kinds.GREEDY, "", *texts)
            return
        is_same = are_equal(texts_of(old.events), texts_of(new.events))
        rules = Rules(self.tolerance, has_same_text=is_same, is_stream=old.is_stream)
        if old.is_stream:
            yield from _order(old.events, new.events, has_same_text=is_same)
        yield from _members(old.events, new.events, rules)
        yield from compare_values(old.events, new.events, rules)
        yield from compare_texts(old.events, new.events, is_greedy=is_wanted)


def _headers(request: Request, was: RecordedAnswer, now: RecordedAnswer) -> Iterator[Difference]:
    old, new = was.headers.get("content-type"), now.headers.get("content-type")
    if old is not None and _media(old) != _media(new or ""):
        yield Difference(kinds.CONTENT_TYPE, "", old, new or "absent")
    if was.status is None:
        # A data capture has no other headers.
        return
    for name in was.headers:
        is_read = _fits(name, _READ) and not _fits(name, _OF_PROXIES)
        if is_read and name not in now.headers:
            yield Difference(kinds.HEADER, name, "present", "absent")
        elif is_read:
            sides = [_as_read(name, request, each.headers[name]) for each in (was, now)]
            if sides[0] != sides[1]:
                yield Difference(kinds.HEADER, name, *sides)


def _as_read(name: str, request: Request, value: str) -> str:
    """Return what a client reads in the value of a header; most are another one in each answer."""
    if name == "retry-after":
        return "seconds" if value.isdigit() else "a date"
    if name == "allow":
        return ", ".join(sorted(each.strip().upper() for each in value.split(",")))
    if name == "www-authenticate":
        return value.partition(" ")[0].lower()
    if name in request.headers:
        return "that of the request" if value == request.headers[name] else "another one"
    return ""


def _media(content_type: str) -> tuple[str, str]:
    media, _, more = content_type.lower().partition(";")
    charset = more.partition("charset=")[2].strip(_BLANKS + '"')
    return media.strip(), "" if charset == "utf-8" else charset


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _marks(old: Framed, new: Framed) -> Iterator[Difference]:
    for mark in sorted(old.marks ^ new.marks):
        was, now = ("yes" if mark in each.marks else "no" for each in (old, new))
        yield Difference(kinds.FRAMING, mark, was, now)


def _order(was: list[Event], now: list[Event], *, has_same_text: bool) -> Iterator[Difference]:
    """Yield whether kinds of events come in another order, or are missing.

    Where text is cut into events is nobody's concern: only the first and the last of each kind
    count.
    """
    old, new = ([each for event in events for each in _steps(event)] for events in (was, now))
    gone, added = sorted({*old} - {*new}), sorted({*new} - {*old})
    if not has_same_text:
        gone, added = ([each for each in names if each in _ALWAYS] for names in (gone, added))
    for name in gone:
        yield Difference(kinds.FRAMING, f"event {name}", "present", "absent")
    for name in added:
        yield Difference(kinds.FRAMING, f"event {name}", "absent", "present")
    for name in _ONCE:
        was_count, now_count = old.count(name), new.count(name)
        if was_count and now_count and was_count != now_count:
            counts = (f"{was_count} times", f"{now_count} times")
            yield Difference(kinds.FRAMING, f"event {name}", *counts)
    if set(old) != set(new):
        return
    # By their first events, and by their last ones. A usage so far may be in each event: whether
    # it comes before the finish reason then depends on where the text is cut.
    begun = [[each for each in steps if each != "usage"] for steps in (old, new)]
    for both, way in ((begun, 1), ([old, new], -1)):
        first, other = (list(dict.fromkeys(steps[::way]))[::way] for steps in both)
        if first != other:
            yield Difference(kinds.ORDER, "", ", ".join(first), ", ".join(other))
            return


_NO_JSON: Final = "no JSON"
_ALWAYS: Final = frozenset(
    {
        *(DONE, "usage", "message_start", "message_delta", "message_stop"),
        *("finish reason", "error", _NO_JSON),
    }
)
"""Kinds of events that do not depend on the text."""


_ONCE: Final = (DONE, "finish reason", "message_start", "message_stop", "response.completed")
"""Kinds of events whose number does not depend on where the text is cut."""


def _steps(event: Event) -> list[str]:
    """Return what an event reports, in a fixed order: one event may report several things."""
    if event.text.strip() == DONE:
        return [DONE]
    if name := _name(event):
        return [name]
    if event.value is UNREAD:
        return [_NO_JSON]
    keys: set[str] = set()
    for node in nodes(event.value):
        is_given = node.value not in (None, "", [], {})
        if is_given and node.is_text:
            keys.add("text")
        elif is_given and node.name in FINISHES | {"usage", "error", "tool_calls", "details"}:
            keys.add("finish reason" if node.name in FINISHES else node.name)
    # An event with an empty text only, as a last one may be, is no step.
    return [each for each in _STEPS if each in keys]


_STEPS: Final = ("text", "tool_calls", "finish reason", "details", "usage", "error")


def _name(event: Event) -> str:
    if event.name:
        return event.name
    kind = event.value.get("type") if isinstance(event.value, dict) else None
    return kind if isinstance(kind, str) else ""


def _members(old: list[Event], new: list[Event], rules: Rules) -> Iterator[Difference]:
    """Yield what compares differently in events of one kind, and in all events together."""
    if not rules.is_stream:
        yield from compare_members(old, new, rules)
        return
    groups = [_grouped(events) for events in (old, new)]
    both = groups[0].keys() & groups[1].keys()
    is_cut_alike = both == groups[0].keys() | groups[1].keys()
    # Cut in another way, an event has at once what was in two: null in one, a value in the other.
    had, has = ({} if is_cut_alike else kinds_of(events) for events in (old, new))
    for label in both:
        for each in compare_members(groups[0][label], groups[1][label], rules):
            is_of_one_type = had and had.get(each.place) == has.get(each.place)
            if each.kind != kinds.TYPE or not is_of_one_type:
                yield each
    if not is_cut_alike:
        # Events that were cut in another way: only what is nowhere is missing.
        never = {kinds.MISSING, kinds.ADDED, kinds.NULL, kinds.NUMBER_FORM}
        yield from (
            each
            for each in compare_members(old, new, rules)
            if each.kind in never and not each.was.endswith(" present")
        )


def _grouped(events: list[Event]) -> dict[Hashable, list[Event]]:
    groups: dict[Hashable, list[Event]] = {}
    for event in events:
        if event.value is not UNREAD:
            label = (*_steps(event), has_log_probabilities(event))
            groups.setdefault(label, []).append(event)
    return groups
