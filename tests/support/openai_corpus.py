"""Requests for an OpenAI server, made by seed: right ones, and wrong ones of every kind."""

import json
import random
from collections.abc import Iterator
from typing import Any

from tests.support.openai_bodies import (
    BOTH,
    CHAT,
    COMPLETION,
    HEADERS,
    MESSAGES,
    OF_CHATS,
    OF_COMPLETIONS,
    OTHERS,
    PROMPTS,
    RAW,
    WRONG,
    WRONG_CHATS,
    WRONG_COMPLETIONS,
    WRONG_HEADERS,
)

SHARE_OF_WRONG = 0.3
MOST_TOGETHER = 2


def _right(dice: random.Random) -> tuple[str, dict[str, Any]]:
    path = dice.choice((CHAT, CHAT, COMPLETION))
    body: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_tokens": dice.randint(1, 12)}
    if path == CHAT:
        body["messages"] = dice.choice(MESSAGES)
    else:
        body["prompt"] = dice.choice(PROMPTS)
    if dice.random() < 0.4:
        body["stream"] = True
        body |= dice.choice(({}, {"stream_options": {"include_usage": True}}))
        if dice.random() < 0.1:
            body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    return path, body


def _extras(path: str) -> tuple[dict[str, Any], ...]:
    return BOTH + (OF_CHATS if path == CHAT else OF_COMPLETIONS)


def _wrongs(path: str) -> tuple[dict[str, Any], ...]:
    return WRONG + (WRONG_CHATS if path == CHAT else WRONG_COMPLETIONS)


def requests(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield records of requests, as `replay` reads them: each fixed one, then `count` made ones.

    Every member of the tables above is in one request at least if `count` is 400 or more: they are
    dealt as cards are, and only what a request has more is drawn.
    """
    dice = random.Random(seed)
    for method, path, body in RAW:
        headers = {"content-type": "application/json"} if method != "GET" else {}
        yield {"method": method, "path": path, "body": body, "headers": headers}
    for path, body in OTHERS:
        headers = {"content-type": "application/json"}
        yield {"method": "POST", "path": path, "body": json.dumps(body), "headers": headers}
    decks: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for _ in range(count):
        path, body = _right(dice)
        is_wrong = dice.random() < SHARE_OF_WRONG
        deck = decks.setdefault((path, is_wrong), [])
        if not deck:
            deck += _wrongs(path) if is_wrong else _extras(path)
            dice.shuffle(deck)
        body |= deck.pop()
        for more in dice.sample(_extras(path), 0 if is_wrong else dice.randrange(MOST_TOGETHER)):
            body |= more
        headers = {"content-type": "application/json"} | dice.choice(HEADERS)
        if is_wrong and dice.random() < 0.05:
            headers |= dice.choice(WRONG_HEADERS)
        yield {"path": path, "headers": headers, "body": json.dumps(body)}
