"""Compare generated texts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lmi_backend.clients.openai import CHATS, COMPLETIONS
from lmi_backend.migrate import kinds
from lmi_backend.migrate.framing import ARGUMENTS, UNREAD, as_float, kind_of, parsed, quoted, walk
from lmi_backend.migrate.kinds import Difference
from lmi_backend.migrate.records import INVOCATIONS

if TYPE_CHECKING:
    from lmi_backend.migrate.framing import Event, Node
    from lmi_backend.migrate.records import Request

_NEAR: Final = 0.1
"""Two tokens are as likely if their log probabilities differ by less."""
_AROUND: Final = 24
_LIKELY: Final = 5
"""Alternatives of a token that are requested."""


class Text(NamedTuple):
    place: str
    name: str
    text: str


class _Token(NamedTuple):
    text: str
    log_probability: float
    others: Mapping[str, float]


def texts_of(events: Iterable[Event]) -> dict[str, Text]:
    """Return the texts of an answer by their exact places; parts of a stream are joined."""
    by_place: dict[str, Text] = {}
    for node in walk(events):
        if node.is_text:
            earlier = by_place[node.exact].text if node.exact in by_place else ""
            by_place[node.exact] = Text(node.place, node.name, earlier + node.value)
    return by_place


def are_equal(was: Mapping[str, Text], now: Mapping[str, Text]) -> bool:
    """Return whether the texts that both answers have are the same.

    They differ also if each answer has one that the other lacks: a call of a tool, say.
    """
    if was.keys() - now.keys() and now.keys() - was.keys():
        return False
    return all(was[exact].text == now[exact].text for exact in was.keys() & now.keys())


def compare_texts(was: list[Event], now: list[Event], *, is_greedy: bool) -> Iterator[Difference]:
    """Yield where texts differ that must not: greedy ones, and arguments that are no JSON now."""
    old, new = texts_of(was), texts_of(now)
    lost, gained = (sorted(one.keys() - other.keys()) for one, other in ((old, new), (new, old)))
    if is_greedy and lost and gained:
        one, other = old[lost[0]], new[gained[0]]
        yield Difference(kinds.GREEDY, one.place, quoted(one.text), f"{other.place} instead")
    for exact, text in old.items():
        same = new.get(exact)
        if same is None or same.text == text.text:
            continue
        if text.name in ARGUMENTS:
            yield from _arguments(text, same, is_greedy=is_greedy)
        elif is_greedy:
            yield _divergence(text, same, list(_tokens(was)), list(_tokens(now)))


def _arguments(was: Text, now: Text, *, is_greedy: bool) -> Iterator[Difference]:
    old, new = parsed(was.text), parsed(now.text)
    if old is UNREAD:
        return
    if new is UNREAD:
        yield Difference(kinds.TOOL, was.place, "JSON", f"no JSON: {quoted(now.text)}")
    elif kind_of(old) != kind_of(new):
        yield Difference(kinds.TYPE, was.place, kind_of(old), kind_of(new))
    elif is_greedy and old != new:
        yield Difference(kinds.TOOL, was.place, quoted(old), quoted(new))


def _divergence(was: Text, now: Text, old: list[_Token], new: list[_Token]) -> Difference:
    pairs = enumerate(zip(was.text, now.text, strict=False))
    shorter = min(len(was.text), len(now.text))
    at = next((place for place, (one, other) in pairs if one != other), shorter)
    start = max(0, at - _AROUND)
    place = f"from character {at}: "
    earlier, after = (quoted(text[start : at + _AROUND]) for text in (was.text, now.text))
    likely = _paired(old, new) or _alternative(was.text, now.text, at, new)
    if likely is None:
        return Difference(kinds.GREEDY, was.place, place + earlier, place + after)
    kind = kinds.NEAR_TIE if abs(likely[0] - likely[1]) < _NEAR else kinds.GREEDY
    likelihoods = [f" (log probability {each:.3f})" for each in likely]
    return Difference(
        kind, was.place, place + earlier + likelihoods[0], place + after + likelihoods[1]
    )


def _paired(old: list[_Token], new: list[_Token]) -> tuple[float, float] | None:
    """Return how likely the first different tokens were, where both answers say it."""
    pairs = ((a, b) for a, b in zip(old, new, strict=False) if a.text != b.text)
    for one, other in pairs:
        rival = one.others.get(other.text)
        has_rival = rival is not None and isinstance(rival, (int, float))
        return one.log_probability, as_float(rival or 0) if has_rival else other.log_probability
    return None


def _alternative(was: str, now: str, at: int, new: list[_Token]) -> tuple[float, float] | None:
    """Return how likely the old and the new token were, as the new server says it.

    The old token is the longest alternative with which the old text continues.
    """
    start = 0
    for token in new:
        end = start + len(token.text)
        if now[start:end] != token.text:
            return None
        if end > at:
            rest = was[start:]
            others = [each for each in token.others if each and rest.startswith(each)]
            chosen = max(others, key=len, default=None)
            logprob = token.others[chosen] if chosen is not None else None
            is_number = isinstance(logprob, (int, float))
            return (as_float(logprob), token.log_probability) if is_number and logprob else None
        start = end
    return None


def with_probabilities(request: Request) -> Request | None:
    """Return a request whose answer tells how likely tokens were; None if no body can say so."""
    body = parsed(request.body.decode("utf-8", "replace"))
    if not isinstance(body, dict):
        return None
    if isinstance(body.get("messages"), list) and request.bare_path in (CHATS, INVOCATIONS):
        more = {"logprobs": True, "top_logprobs": _LIKELY}
    elif request.bare_path == COMPLETIONS:
        more = {"logprobs": _LIKELY}
    else:
        return None
    return replace(request, body=json.dumps({**body, **more}).encode())


def _tokens(events: Iterable[Event]) -> Iterator[_Token]:
    for node in walk(events):
        if isinstance(node.value, dict):
            yield from _of_lists(node) if "token_logprobs" in node.value else _of_one(node)


def _of_one(node: Node) -> Iterator[_Token]:
    """Yield the token of an object that is one; `top_logprobs` has its alternatives."""
    members = node.value
    text = members.get("token", members.get("text"))
    number = members.get("logprob", members.get("log_prob"))
    is_other = "top_logprobs" in node.place or "top_tokens" in node.place
    if isinstance(text, str) and isinstance(number, (int, float)) and not is_other:
        others = members.get("top_logprobs")
        yield _Token(
            text, as_float(number), dict(_alternatives(others if isinstance(others, list) else []))
        )


def _alternatives(others: list[Any]) -> Iterator[tuple[str, float]]:
    for each in others:
        match each:
            case {"token": str() as text, "logprob": int() | float() as number}:
                yield text, number


def _of_lists(node: Node) -> Iterator[_Token]:
    texts, numbers = node.value.get("tokens"), node.value["token_logprobs"]
    others = node.value.get("top_logprobs")
    if not isinstance(texts, list) or not isinstance(numbers, list):
        return
    for place, (text, number) in enumerate(zip(texts, numbers, strict=False)):
        if isinstance(text, str) and isinstance(number, (int, float)):
            near = others[place] if isinstance(others, list) and place < len(others) else None
            yield _Token(text, as_float(number), near if isinstance(near, dict) else {})
