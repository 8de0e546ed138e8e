"""What differs between two answers of LMI's form, place by place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from tests.support.lmi_answers import Answer

Json = Any
_MISSING: Final = object()


class Difference(NamedTuple):
    """One place where two answers differ."""

    place: str
    """Names of members; `[]` is each item of a list."""
    kind: str
    lmi: Json = None
    here: Json = None


def differences(lmi: Answer, here: Answer) -> list[Difference]:
    """Return all places; of texts of errors only whether there is one."""
    return list(_of_answers(lmi, here))


def _of_answers(lmi: Answer, here: Answer) -> Iterator[Difference]:
    if lmi.status != here.status:
        yield Difference("", "status", lmi.status, here.status)
        return
    if lmi.content_type != here.content_type:
        yield Difference("", "content type", lmi.content_type, here.content_type)
    theirs, ours = units(lmi), units(here)
    if has_own_role(ours) and not has_own_role(theirs):
        yield Difference("choices[].delta.role", "event of its own")
        ours = with_role(ours)
    if lmi.status != 200:
        yield from _of_errors(theirs, ours)
        return
    if len(theirs) != len(ours):
        yield Difference("", "number of parts", len(theirs), len(ours))
    elif framing(lmi) != framing(here):
        yield Difference("", "framing", lmi.body, here.body)
    for left, right in zip(theirs, ours, strict=False):
        yield from _of_values("", left, right)


def _of_errors(theirs: list[Json], ours: list[Json]) -> Iterator[Difference]:
    for left, right in zip(theirs, ours, strict=False):
        for found in _of_values("", left, right):
            if found.kind != "value" or found.place not in ("error", "message"):
                yield found


def units(answer: Answer) -> list[Json]:
    """Return the JSON values of an answer: the body, its lines or its events."""
    if answer.content_type in ("application/json", ""):
        return [_read(answer.body)]
    if answer.content_type == "text/plain":
        return [answer.body]
    mark = "\n\n" if answer.content_type == "text/event-stream" else "\n"
    parts = [part for part in answer.body.split(mark) if part.strip()]
    return [_read(part.strip("\n").removeprefix("data: ")) for part in parts]


def has_own_role(parts: list[Json]) -> bool:
    """Return whether a chat's stream begins with an event that has no text."""
    return bool(parts) and _delta(parts[0]) == {"role": "assistant", "content": ""}


def with_role(parts: list[Json]) -> list[Json]:
    """Return a chat's stream whose first text has the role too."""
    first, second, *rest = parts
    choice = {**second["choices"][0], "delta": {**_delta(first), **_delta(second)}}
    return [{**second, "choices": [choice]}, *rest]


def _delta(part: Json) -> Json:
    choices = part.get("choices") if isinstance(part, dict) else None
    return choices[0].get("delta", {}) if choices else {}


def framing(answer: Answer) -> str:
    """Return what is between the JSON values."""
    if answer.content_type == "text/event-stream":
        return " ".join(dict.fromkeys(part[:6] for part in answer.body.split("\n\n")))
    if answer.content_type == "application/jsonlines":
        return " ".join(part[:1] for part in answer.body.split("\n"))
    return answer.body[-1:] if answer.body.endswith("\n") else ""


def _read(text: str) -> Json:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _of_values(place: str, lmi: Json, here: Json) -> Iterator[Difference]:
    if isinstance(lmi, dict) and isinstance(here, dict):
        for name in dict.fromkeys((*lmi, *here)):
            inner = f"{place}.{name}".strip(".")
            left, right = lmi.get(name, _MISSING), here.get(name, _MISSING)
            if right is _MISSING:
                yield Difference(inner, "missing here", left)
            elif left is _MISSING:
                yield Difference(inner, "new here", None, right)
            else:
                yield from _of_values(inner, left, right)
        is_error = "error" in lmi or "message" in lmi
        if not is_error and [n for n in lmi if n in here] != [n for n in here if n in lmi]:
            yield Difference(place, "order of members", [*lmi], [*here])
    elif isinstance(lmi, list) and isinstance(here, list):
        if len(lmi) != len(here):
            yield Difference(place, "length", len(lmi), len(here))
        for left, right in zip(lmi, here, strict=False):
            yield from _of_values(f"{place}[]", left, right)
    elif type(lmi) is not type(here):
        yield Difference(place, "type", lmi, here)
    elif repr(lmi) != repr(here):
        yield Difference(place, "value", lmi, here)
