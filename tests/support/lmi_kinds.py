"""Which kind of difference from LMI a place is: tests/data/lmi_answers/kinds.json explains them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from tests.support.lmi_answers import Row
from tests.support.lmi_differences import Difference

_NUMBERS: Final = (float("-inf"), -9999.0)
_CHAT: Final = ("json_chat", "jsonlines_chat", "sse_chat")


def _is(found: Difference, kind: str, place: str = ".*") -> bool:
    return found.kind in kind.split("|") and bool(re.fullmatch(rf"(\[\]\.)?({place})", found.place))


def _has_own_texts(row: Row) -> bool:
    """Whether the texts of the tokens are other than what they add to the answer."""
    return any(
        text != "".join(token[1] for token in tokens)
        for answer in row.script["answers"]
        for text, tokens in answer["steps"]
    )


def _has_long_steps(row: Row) -> bool:
    return any(len(s[1]) > 1 for answer in row.script["answers"] for s in answer["steps"])


def _has_empty_steps(row: Row) -> bool:
    return any(not s[1] for answer in row.script["answers"] for s in answer["steps"])


def _is_chat(row: Row) -> bool:
    return isinstance(row.body, dict) and "messages" in row.body


def _has_stream_options(row: Row) -> bool:
    return isinstance(row.body, dict) and "stream_options" in row.body


def _answers(row: Row) -> int:
    found = [row.parameters.get(name) for name in ("n", "best_of", "num_beams")]
    if row.dialect == "async":
        found.append(row.parameters.get("top_n_tokens"))
    if isinstance(row.body, dict):
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
        r.dialect == "legacy" and _has_stream_options(r) and _is(d, "type|number of parts", "")
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
    "a list of inputs": lambda r, d: (
        isinstance(r.body, dict) and isinstance(r.body.get("inputs"), list)
    ),
    "several answers": lambda r, d: _answers(r) > 1,
    "texts of tokens": lambda r, d: (
        _is(d, "value", r"generated_text|.*token.?(\[\])?\.text|choices.*content")
        and _has_own_texts(r)
    ),
    "an end without a token": lambda r, d: _has_empty_steps(r),
    "tokens of the prompt": lambda r, d: (
        r.dialect == "async" and bool(r.parameters.get("return_full_text"))
    ),
    "likeliest tokens": lambda r, d: r.dialect == "async" and _is(d, "new here", ".*top_tokens"),
    "tokens of one step": lambda r, d: _has_long_steps(r),
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
