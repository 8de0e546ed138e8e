"""What LMI's own handlers answered to 3,856 requests, and what is answered here.

Each difference has a kind, which tests/data/lmi_answers/kinds.json and docs/lmi-differences.md
explain. `UPDATE_GOLDEN=1` writes how many requests show it.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

from tests.support.answers.lmi_answers import (
    FOLDER,
    Answer,
    Json,
    Row,
    our_adapter,
    our_answer,
    our_sampling,
    rows,
)

TABLE = FOLDER / "kinds.json"
_MISSING: Final = object()


class Difference(NamedTuple):
    """One place where two answers differ."""

    place: str
    """Names of members; `[]` is each item of a list."""
    kind: str
    lmi: Json = None
    here: Json = None


def differences(lmi: Answer, here: Answer) -> Iterator[Difference]:
    """Yield all places; of texts of errors only whether there is one."""
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


_NUMBERS: Final = (float("-inf"), -9999.0)
_CHAT: Final = ("json_chat", "jsonlines_chat", "sse_chat")


def _is(found: Difference, kind: str, place: str = ".*") -> bool:
    return found.kind in kind.split("|") and bool(re.fullmatch(rf"(\[\]\.)?({place})", found.place))


def _steps(row: Row) -> Iterator[Json]:
    """Yield each step of the engine: a text, and its tokens."""
    return (step for answer in row.script["answers"] for step in answer["steps"])


def _has_own_texts(row: Row) -> bool:
    """Whether the texts of the tokens are other than what they add to the answer."""
    return any(text != "".join(token[1] for token in tokens) for text, tokens in _steps(row))


def _is_chat(row: Row) -> bool:
    return "messages" in row.body


def _answers(row: Row) -> int:
    found = [row.parameters.get(name) for name in ("n", "best_of", "num_beams")]
    if row.dialect == "async":
        found.append(row.parameters.get("top_n_tokens"))
    found.append(row.body.get("n"))
    return max((each for each in found if isinstance(each, int)), default=1)


Rule = Callable[[Row, Difference], bool]
KINDS: Final[dict[str, Rule]] = {
    # The status comes first: nothing else is compared then.
    "formatter none": lambda r, d: _is(d, "status") and r.formatter == "none",
    "unknown formatter": lambda r, d: (
        r.dialect == "legacy" and r.formatter in ("yaml", "3p", "3p_stream") and d.lmi != 200
        if d.kind != "status"
        else r.formatter in ("yaml", "3p", "3p_stream")
    ),
    "a wrong OpenAI body": lambda r, d: (
        _is(d, "status") and _is_chat(r) and (d.lmi, d.here) == (424, 400)
    ),
    "greedy and several": lambda r, d: (
        _is(d, "status") and r.group == "several answers" and r.dialect == "legacy"
    ),
    "prefill of a stream": lambda r, d: (
        _is(d, "status") and r.streams and bool(r.parameters.get("decoder_input_details"))
    ),
    "failure before the first token": lambda r, d: _is(d, "status") and r.group == "failures",
    "an unknown adapter of an OpenAI body": lambda r, d: (
        _is(d, "status") and r.group == "adapters" and (d.lmi, d.here) == (424, 404)
    ),
    "an adapter among the parameters": lambda r, d: _is(d, "status") and "adapters" in r.parameters,
    "refused here": lambda r, d: _is(d, "status") and (d.lmi, d.here) == (200, 424),
    "refused there": lambda r, d: _is(d, "status") and (d.lmi, d.here) == (424, 200),
    "type of an error": lambda r, d: _is(d, "content type") and r.answer.status != 200,
    "members of an error": lambda r, d: r.answer.status != 200,
    "white space": lambda r, d: _is(d, "framing") and r.dialect == "async",
    "chat formats of a text": lambda r, d: r.formatter in _CHAT,
    "failure in the middle": lambda r, d: r.group == "failures" and d.kind != "number of parts",
    "special tokens": lambda r, d: _is(d, "new here", r".*special(_token)?"),
    "never": lambda r, d: (d.lmi, d.here) == _NUMBERS,
    "usage of a stream": lambda r, d: (
        r.dialect == "legacy" and "stream_options" in r.body and _is(d, "type|number of parts", "")
    ),
    "a call in a stream": lambda r, d: (
        r.dialect == "legacy"
        and r.group == "tools"
        and r.streams
        and _answers(r) == 1
        and _is(d, "missing here|number of parts|value", r".*delta\..*|.*finish_reason|")
    ),
    "name of a finish reason": lambda r, d: _is(
        d, "value|type", r"(details\.|choices\[\]\.)finish_reason"
    ),
    "events of OpenAI's format": lambda r, d: (
        r.dialect == "async"
        and r.group in ("chat", "completion", "adapters", "tools", "images")
        and r.streams
        and _is(d, "content type|number of parts")
    ),
    "members of OpenAI's format": lambda r, d: (
        _is_chat(r) and _is(d, "new here|order of members|event of its own")
    ),
    "log probabilities of a chat": lambda r, d: (
        _is_chat(r) and _is(d, "type", r"choices\[\]\.logprobs") and d.lmi is None
    ),
    "stream among the parameters": lambda r, d: "stream" in r.parameters,
    "a list of inputs": lambda r, d: isinstance(r.body.get("inputs"), list),
    "several answers": lambda r, d: _answers(r) > 1,
    "texts of tokens": lambda r, d: (
        _is(d, "value", r"generated_text|.*token.?(\[\])?\.text|choices.*content")
        and _has_own_texts(r)
    ),
    "an end without a token": lambda r, d: any(not tokens for _, tokens in _steps(r)),
    "tokens of the prompt": lambda r, d: (
        r.dialect == "async" and bool(r.parameters.get("return_full_text"))
    ),
    "likeliest tokens": lambda r, d: r.dialect == "async" and _is(d, "new here", ".*top_tokens"),
    "tokens of one step": lambda r, d: any(len(tokens) > 1 for _, tokens in _steps(r)),
    "a count": lambda r, d: _is(d, "value", r"details\.generated_tokens") and r.dialect == "async",
}


def kind_of(row: Row, found: Difference) -> str:
    """Return the kind of a difference; empty if it is none of them."""
    return next((name for name, is_it in KINDS.items() if is_it(row, found)), "")


def _names(row: Row, *names: str) -> bool:
    return any(name in row.parameters for name in names)


PARAMETERS: Final[dict[str, Callable[[Row], bool]]] = {
    "max_tokens": lambda r: (
        _names(r, "max_tokens")
        or r.parameters.get("max_new_tokens", 1) is None
        or "max_new_tokens" in r.body
    ),
    "temperature": lambda r: "temperature" in r.body,
    "min_tokens": lambda r: _names(r, "min_new_tokens", "min_length"),
    "n": lambda r: _names(r, "best_of", "num_beams", "top_n_tokens"),
    "stop": lambda r: r.dialect == "async" and _names(r, "stop_sequences"),
    "logit_bias": lambda r: any(abs(w) > 100 for w in r.parameters["logit_bias"].values()),
}
"""Parameters that the engine may get otherwise, and of which requests."""


def explained(table: str, name: str, counts: Counter[str]) -> dict[str, int]:
    """Return how many requests the table says for each kind."""
    kept = json.loads(TABLE.read_text(encoding="utf-8"))
    if os.environ.get("UPDATE_GOLDEN"):
        for item in kept[table]:
            item["requests"] = counts[item[name]]
        text = json.dumps(kept, indent=1, ensure_ascii=False)
        TABLE.write_text(f"{text}\n", encoding="utf-8")
    return {item[name]: item["requests"] for item in kept[table]}


def test_each_difference_from_lmi_is_explained() -> None:
    counts: Counter[str] = Counter()
    unknown: list[Any] = []
    same = 0
    for row in rows():
        found = list(differences(row.answer, our_answer(row)))
        same += not found
        counts.update({kind_of(row, each) for each in found})
        unknown += [(row.known["body"], each) for each in found if not kind_of(row, each)]
    assert unknown == []
    assert dict(counts) == explained("kinds", "kind", counts)
    assert set(counts) == set(KINDS)
    assert same > 1050


def test_with_lines_the_streams_of_openais_bodies_are_lmis() -> None:
    streams = [
        replace(row, has_lines=True)
        for row in rows()
        if row.dialect == "async" and row.streams and "engine" in row.known
        if row.answer.status == 200
    ]
    assert len(streams) > 150
    for row in streams:
        found = {each.kind for each in differences(row.answer, our_answer(row))}
        # White space at the end, as kinds.json has it.
        assert found <= {"framing"}, row.known["body"]


def test_the_engine_gets_the_parameters_that_lmi_gives_it() -> None:
    counts: Counter[str] = Counter()
    unknown: list[Any] = []
    asked = 0
    for row in rows():
        if "sampling" not in row.known or "engine" in row.known:
            continue
        if (ours := our_sampling(row)) is None:
            continue
        asked += 1
        names = {name for name, *_ in other_parameters(row, ours)}
        counts.update(names & PARAMETERS.keys())
        unknown += [
            (row.known["body"], name, row.known["sampling"], ours)
            for name in names
            if name not in PARAMETERS or not PARAMETERS[name](row)
        ]
    assert asked > 2000
    assert unknown == []
    assert dict(counts) == explained("parameters", "parameter", counts)


def test_the_engine_gets_the_adapter_that_lmi_gives_it() -> None:
    asked = [row for row in rows() if row.group == "adapters" and our_answer(row).status == 200]
    answered = [row for row in asked if row.answer.status == 200]
    assert len(answered) > 100
    for row in answered:
        ours = our_adapter(row)
        if "adapters" in row.parameters:
            # LMI passes it over: kinds.json says so.
            assert ours in ("red", ""), row.known["body"]
        else:
            assert ours == row.known.get("adapter", ""), row.known["body"]
    assert {our_adapter(row) for row in answered} == {"", "red", "blue"}


def other_parameters(row: Row, ours: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the parameters that differ: name, LMI's and ours."""
    # What is shown of tokens; and LMI's server makes a seed of its own for each request.
    ignored = {"logprobs", "prompt_logprobs", "skip_clone", "skip_reading_prefix_cache"}
    if row.parameters.get("seed") is None:
        ignored.add("seed")
    theirs = row.known["sampling"]
    ours = json.loads(json.dumps(ours))
    for name in {*theirs, *ours} - ignored:
        if theirs.get(name) != ours.get(name):
            yield name, theirs.get(name), ours.get(name)
