"""Make a request smaller as long as its answers still differ in the same way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.migrate.framing import UNREAD, parsed
from lmi_backend.migrate.kinds import Difference

if TYPE_CHECKING:
    from lmi_backend.migrate.records import RecordedAnswer, RecordedExchange, Request
    from lmi_backend.migrate.running import Replay

MOST_TRIES: Final = 80
"""Requests that one example may cost each server."""
FEW_FIELDS: Final = 5
"""Values of a body that is small enough: a person sees at once what matters."""
_SMALL: Final = 300
_SHORT: Final = "Hi"
_FEW: Final = 2
_LIMITS: Final = frozenset(
    {"max_tokens", "max_new_tokens", "max_completion_tokens", "max_output_tokens"}
)
"""Members that stay: without them an answer may take minutes."""
_PROMPTS: Final = frozenset({"model", "messages", "prompt", "input", "inputs", "text_input"})


@dataclass(frozen=True)
class Example:
    """A request that shows a difference, as small as it could be made."""

    request: Request
    is_repeated: bool
    """Whether the difference was there again when the request was sent once more."""


def example_of(replay: Replay, exchange: RecordedExchange, target: Difference) -> Example:
    """Return the smallest request found that shows a difference.

    Without the old server the recorded answer stays the measure: then a smaller request must show
    this difference and no other one that the whole request does not show.
    """
    recorded = exchange.answer
    first = _with_same_difference(replay, exchange.request, recorded)
    if target.key not in first:
        return Example(exchange.request, is_repeated=False)
    wanted = frozenset(first)
    left = MOST_TRIES

    def shows(request: Request) -> bool:
        nonlocal left
        left -= 1
        smaller = _with_same_difference(replay, request, recorded)
        return target.key in smaller and (replay.old is not None or smaller <= wanted)

    request = exchange.request
    while not _is_small(request) and not replay.stop.is_set():
        tries = takewhile(lambda _: left > 0, _smaller(request))
        if (smaller := next(filter(shows, tries), None)) is None:
            break
        request = smaller
    return Example(request, is_repeated=True)


def _is_small(request: Request) -> bool:
    return fields_of(request) <= FEW_FIELDS and len(request.body) <= _SMALL


def _with_same_difference(
    replay: Replay, request: Request, recorded: RecordedAnswer | None
) -> frozenset[tuple[str, str]]:
    was = replay.old.send(request) if replay.old else recorded
    if was is None:
        return frozenset()
    differences = replay.differences(request, was, replay.new.send(request))
    return frozenset(each.key for each in differences)


def _smaller(request: Request) -> Iterator[Request]:
    """Yield requests that are smaller in one respect, the most telling first."""
    extra = {name: value for name, value in request.headers.items() if name != "content-type"}
    if len(extra) > 1:
        yield replace(request, headers=_without(request, set(extra)))
    for name in extra:
        yield replace(request, headers=_without(request, {name}))
    body = parsed(request.body.decode("utf-8", "replace"))
    if body is UNREAD:
        yield from (replace(request, body=half) for half in _halves(request.body))
        return
    for value in _variants(body):
        yield replace(request, body=json.dumps(value).encode())


def _without(request: Request, names: set[str]) -> dict[str, str]:
    return {name: value for name, value in request.headers.items() if name not in names}


def _halves(body: bytes) -> Iterator[bytes]:
    if len(body) > _FEW:
        yield body[: len(body) // 2]
        yield body[len(body) // 2 :]


def _variants(value: Any) -> Iterator[Any]:
    """Yield values that have less in them: members and list items dropped, texts cut."""
    if isinstance(value, dict):
        for dropped in _droppable(value):
            yield {name: item for name, item in value.items() if name not in dropped}
        for key, item in value.items():
            yield from ({**value, key: less} for less in _variants(item))
    elif isinstance(value, list):
        if len(value) > _FEW:
            yield value[: len(value) // 2]
            yield value[len(value) // 2 :]
        if len(value) > 1:
            yield from ([*value[:at], *value[at + 1 :]] for at in range(len(value)))
        for at, item in enumerate(value):
            yield from ([*value[:at], less, *value[at + 1 :]] for less in _variants(item))
    elif isinstance(value, str) and len(value) > 3 * len(_SHORT):
        yield _SHORT
        yield value[: len(value) // 2]


def _droppable(value: dict[str, Any]) -> Iterator[set[str]]:
    """Yield sets of members to leave out, large ones first: each try costs a request."""
    names = [name for name, item in value.items() if not _has_limit(name, item)]
    names.sort(key=lambda name: (name in _PROMPTS, -len(json.dumps(value[name]))))
    extra = [name for name in names if name not in _PROMPTS]
    size = len(extra)
    while size > 1:
        yield from (set(extra[at : at + size]) for at in range(0, len(extra), size))
        size //= 2
    yield from ({name} for name in names)


def _has_limit(name: str, value: Any) -> bool:
    return name in _LIMITS or (isinstance(value, dict) and not _LIMITS.isdisjoint(value))


def fields_of(request: Request) -> int:
    body = parsed(request.body.decode("utf-8", "replace"))
    return _leaves(body) if body is not UNREAD else 1


def _leaves(value: Any) -> int:
    if isinstance(value, (dict, list)) and value:
        inner = value.values() if isinstance(value, dict) else value
        return sum(map(_leaves, inner))
    return 1
