"""What each member of an answer is: generated text, a count, something that always changes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lmi_backend.migrate.framing import UNREAD, parsed

if TYPE_CHECKING:
    from lmi_backend.migrate.exchange import Request

CHANGING: Final = frozenset(
    {
        *("id", "created", "created_at", "completed_at", "request_id", "system_fingerprint"),
        *("item_id", "response_id", "previous_response_id", "call_id", "tool_call_id", "seed"),
        *("sequence_number", "timestamp", "obfuscation", "signature", "encrypted_content"),
        # Texts of errors are for people.
        *("message", "error", "detail", "error_message", "Message", "OriginalMessage", "stack"),
    }
)
"""Members whose values differ between two answers of one server."""
TEXTS: Final = frozenset(
    {
        *("content", "text", "generated_text", "text_output", "reasoning", "reasoning_content"),
        *("thinking", "refusal", "arguments", "partial_json", "output_text", "delta"),
        "completion",
    }
)
"""Members with generated text."""
PARTS: Final = frozenset(
    {"content", "tool_calls", "refusal", "reasoning", "reasoning_content", "thinking"}
)
"""Members of a message that a model may leave out, for instance the text next to a tool call."""
ARGUMENTS: Final = frozenset({"arguments", "partial_json"})
"""Those of them that are JSON."""
FINISHES: Final = frozenset({"finish_reason", "stop_reason", "stop_sequence", "matched_stop"})
PROMPT_COUNTS: Final = frozenset({"prompt_tokens", "input_tokens", "input_length", "cached_tokens"})
COUNTS: Final = PROMPT_COUNTS | {
    *("completion_tokens", "total_tokens", "output_tokens", "generated_tokens", "input_tokens"),
    *("reasoning_tokens", "num_generated_tokens", "prompt_token_count"),
}
_MADE_OF_TEXT: Final = frozenset(
    {
        *("logprobs", "log_prob", "logprob", "token", "tokens", "token_ids", "tool_calls"),
        *("details", "input", "bytes", "text_offset", "annotations", "token_logprobs"),
        *("top_logprobs", "cumulative_logprob", "cum_log_probs", "output_log_probs", "status"),
        *("incomplete_details", "finish_details"),
    }
)
"""Members whose values follow from the generated text."""
_OF_TOKENS: Final = frozenset({"tokens[]", "prefill[]", "top_tokens[]", "logprobs"})
"""Lists of tokens: their texts repeat the generated text."""
LOG_PROBABILITIES: Final = frozenset(
    {
        *("logprob", "log_prob", "token_logprobs", "cumulative_logprob", "cum_log_probs"),
        *("output_log_probs", "top_logprobs"),
    }
)
_FAMILIES: Final = (
    frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"}),
    frozenset({"eos_token", "length", "stop_sequence", "error"}),
    frozenset({"end_turn", "max_tokens", "stop_sequence", "tool_use"}),
)
"""Reasons that one kind of client gets."""
_SAMPLES: Final = frozenset({"temperature", "top_k", "top_p", "typical_p"})


class Node(NamedTuple):
    """A value in an answer."""

    place: str
    """Its path, without the numbers of list members."""
    exact: str
    """Its path, with the number that a list member gives itself, or else has."""
    name: str
    """The last name on its path."""
    value: Any

    @property
    def is_text(self) -> bool:
        """Whether it is generated text, or a part of it in a stream."""
        is_of_token = not _OF_TOKENS.isdisjoint(self.place.split("."))
        return self.name in TEXTS and isinstance(self.value, str) and not is_of_token

    @property
    def follows_text(self) -> bool:
        """Whether its value follows from the generated text."""
        parts = self.place.replace("[]", "").split(".")
        return self.name in COUNTS - PROMPT_COUNTS or not _MADE_OF_TEXT.isdisjoint(parts)


def nodes(value: Any) -> Iterator[Node]:
    """Yield a value and all that is in it, the outer ones first."""
    todo = [Node("", "", "", value)]
    while todo:
        node = todo.pop()
        yield node
        todo.extend(reversed(list(_children(node))))


def _children(node: Node) -> Iterator[Node]:
    if isinstance(node.value, dict):
        is_open = node.name == "top_logprobs"
        for key, value in node.value.items():
            # Names that are tokens are no names.
            name = "*" if is_open else str(key)
            dot = "." if node.place else ""
            exact = f"{node.exact}{dot}{key}"
            yield Node(f"{node.place}{dot}{name}", exact, node.name if is_open else name, value)
    elif isinstance(node.value, list):
        for number, value in enumerate(node.value):
            own = value.get("index") if isinstance(value, dict) else None
            shown = own if isinstance(own, int) else number
            yield Node(f"{node.place}[]", f"{node.exact}[{shown}]", node.name, value)


def kind_of(value: Any) -> str:
    """Return the JSON type of a value; numbers are told apart by how they are written."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, float):
        return "number" if value - value == 0 else "NaN or infinity"
    kinds = {int: "integer", str: "text", dict: "object", list: "list"}
    return kinds[type(value)]


def as_float(value: float) -> float:
    """Return a number as a float; an integer may be too large for one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def is_same_vocabulary(was: str, now: str) -> bool:
    """Return whether a client may get either of two finish reasons."""
    return was == now or any({was, now} <= family for family in _FAMILIES)


def is_greedy(request: Request) -> bool:
    """Return whether a request wants the most likely tokens: the same text each time.

    A client's own default counts: LMI and Text Generation Inference sample only if the request
    says so, the others always sample unless it says otherwise.
    """
    body = parsed(request.body.decode("utf-8", "replace"))
    if body is UNREAD or not isinstance(body, dict):
        return False
    inner = body.get("parameters")
    given = {**body, **inner} if isinstance(inner, dict) else body
    if given.get("use_beam_search"):
        return True
    if given.get("temperature") == 0 or given.get("top_k") == 1:
        return True
    if given.get("do_sample") is not None:
        return given["do_sample"] is False
    has_default = "inputs" in body
    return has_default and _SAMPLES.isdisjoint(given)


def shown(value: Any, most: int = 80) -> str:
    """Return a value for people, cut."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def shape_of(value: Any) -> Any:
    """Return a value with the types of its texts and numbers in their place."""
    if isinstance(value, dict):
        return {key: shape_of(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape_of(item) for item in value]
    return kind_of(value)
