"""docs/mutations.md: what comes of each change of what is held inside vLLM.

`make compat COMPAT=--mutations` writes tests/data/mutations.json, which this reads.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from named_tests import TESTS

from lmi_backend.engines.vllm.inside.table import NEEDS, PATHS

RESULTS: Final = TESTS / "data" / "mutations.json"
WORDS: Final = {
    "fast paths": "All fast paths are in use, and the answers are those of the untouched vLLM.",
    "public way": "The named fast paths are off, with a warning. The answers are the same.",
    "refused by name": "The model does not start, and the error has the name.",
    "error of one request": "One request fails with vLLM's error. The other answers are the same.",
    "off by its source": "The source tells what is missing: the fast path is off, with a warning.",
    "found by its source": "The source has the name, wherever it is.",
    "wrong": "Something else: it is in the last section.",
}
"""Each outcome, and what it means."""

_ABOUT: Final = """\
# Changes inside vLLM

*For contributors: what happens when something inside vLLM changes.*

vLLM promises none of the names that this package uses inside it. Each is changed here as a release
might change it, in a copy of the Python files of vLLM {version}. The tiny model is started with
the copy and answers one request of each kind. There are chats, completions and tensors; tools,
schemas, adapters and log probabilities; several answers, cancelled and resumed streams, and a
request that vLLM refuses. Where a change touches `plain_stream` or `known_chats`, the server parses
no tools: with a parser no chat is plain.

`make compat COMPAT=--mutations` runs what the record (`tests/data/mutations.json`) does not have.
Several changes that touch different fast paths are in one copy. Where the outcome does not
tell which change did what, the copy is made again with half of them. Names of MPI mode and of
several machines are looked for in the source alone. `--sources` does that for all the others too:
its fast paths were not started.

Some changes are seen only by callers outside vLLM: `a tuple`, `a coroutine`, `no coroutine`,
`positional only`, `a property`, `a method`, `unreadable`, `frozen`, `__slots__`, `another default`,
`a prompt given once`. So vLLM itself works, however others call the function. What stands in for a
function of vLLM's hands on what vLLM gives it and what it gets: vLLM's own callers know what they
get then, and that call is not one from outside.
"""


def mutations_page() -> Iterator[str]:
    """Yield the lines of the page."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    found: Mapping[str, list[str]] = kept["found"]
    counts = Counter(word for word, _ in found.values())
    yield _ABOUT.format(version=kept["vllm"])
    yield "| outcome | changes | what it means |"
    yield "| --- | --- | --- |"
    for word, meaning in WORDS.items():
        if counts[word]:
            yield f"| {word} | {counts[word]} | {meaning} |"
    yield "\n## By name\n"
    yield "| name | for | outcomes |"
    yield "| --- | --- | --- |"
    for name, users in _users(found).items():
        yield f"| `{name}` | {', '.join(users)} | {_outcomes(_of(name, found))} |"
    yield from _section("What they say", found, "refused by name", "error of one request", "wrong")
    if kept.get("not_run"):
        yield "\n## Not run\n"
        yield from (f"- `{name}`" for name in kept["not_run"])


def bare(text: str) -> str:
    """Return a name of the tables without what they say of it."""
    return text.partition("(")[0].rstrip("?")


def _users(found: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return each name of the tables or of the record, and what it is for."""
    users: dict[str, list[str]] = {}
    entries: list[Any] = [*PATHS, *NEEDS]
    for entry in entries:
        for text in entry.names:
            users.setdefault(bare(text), []).append(entry.name)
    # Whole classes, whose members are held.
    for key in {name.partition(": ")[0] for name in found} - users.keys():
        of = {user for name, each in users.items() if name.startswith(f"{key}.") for user in each}
        users[key] = sorted(of)
    return dict(sorted(users.items()))


def _of(key: str, found: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the changes of a name, by outcome."""
    kinds: dict[str, list[str]] = {}
    for name, (word, _) in found.items():
        of, _, kind = name.partition(": ")
        if of == key:
            kinds.setdefault(word, []).append(kind)
    return kinds


def _outcomes(kinds: Mapping[str, list[str]]) -> str:
    each = [f"{word}: {', '.join(kinds[word])}" for word in WORDS if word in kinds]
    return "<br>".join(each) or "not run"


def _section(title: str, found: Mapping[str, list[str]], *words: str) -> Iterator[str]:
    rows = [(name, why) for name, (word, why) in found.items() if word in words]
    if rows:
        yield f"\n## {title}\n"
        yield "| change | said |"
        yield "| --- | --- |"
        for name, why in rows:
            shown = why.replace("|", "\\|").replace("`", "'")
            yield f"| `{name}` | `{shown}` |"
