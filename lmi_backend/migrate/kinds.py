"""The kinds of differences: the one table of their names and what to do about each."""

from __future__ import annotations

from typing import Final, NamedTuple

_LMI: Final = frozenset({"LMI", "SageMaker"})
_OURS: Final = "this may be a fault of lmi-backend: report it with this request"


class Difference(NamedTuple):
    kind: str
    """A key of `ADVICE`."""
    place: str
    """Where in the answer, without the numbers of list members."""
    was: str
    now: str

    @property
    def key(self) -> tuple[str, str]:
        """What differences of the same reason share."""
        return self.kind, self.place


UNANSWERED: Final = "no answer"
STATUS: Final = "status"
HEADER: Final = "header"
CONTENT_TYPE: Final = "content type"
BODY: Final = "body"
FRAMING: Final = "stream framing"
ORDER: Final = "order of events"
MISSING: Final = "missing member"
ADDED: Final = "new member"
NULL: Final = "null or absent"
TYPE: Final = "type"
NUMBER_FORM: Final = "number form"
LENGTH: Final = "list length"
FINISH: Final = "finish reason"
USAGE: Final = "usage count"
LOG_PROBABILITY: Final = "log probability"
NUMBER: Final = "number"
VALUE: Final = "value"
TOOL: Final = "tool arguments"
GREEDY: Final = "greedy text"
NEAR_TIE: Final = "greedy text, a near tie"

ADVICE: Final = {
    UNANSWERED: "look at the log of the new server; a larger --timeout may be needed",
    STATUS: "run `lmi-backend check FOLDER`, and read the new answer: it says what is refused",
    HEADER: "if no client reads this header, accept it with --ignore; else " + _OURS,
    CONTENT_TYPE: "option.output_formatter decides it for LMI bodies; else " + _OURS,
    BODY: "option.output_formatter decides it for LMI bodies; else " + _OURS,
    FRAMING: "option.output_formatter decides it for LMI streams; else " + _OURS,
    ORDER: _OURS,
    MISSING: "option.lmi_dialect decides the members of LMI answers; else " + _OURS,
    ADDED: "most clients ignore it: accept it with --ignore",
    NULL: "option.lmi_dialect decides it for LMI answers; else " + _OURS,
    TYPE: _OURS,
    NUMBER_FORM: _OURS,
    LENGTH: _OURS,
    FINISH: "option.lmi_dialect decides the reasons of LMI answers; else " + _OURS,
    USAGE: "compare the chat template and the tokenizer of both servers; else " + _OURS,
    LOG_PROBABILITY: "compare option.dtype and quantization, or allow more with --tolerance",
    NUMBER: "compare option.dtype and quantization, or allow more with --tolerance",
    VALUE: "if it is the model's name, look at option.served_model_name; else " + _OURS,
    TOOL: "compare option.tool_call_parser of both servers",
    GREEDY: "compare option.dtype, quantization and the chat template of both servers",
    NEAR_TIE: "two tokens are as likely: other hardware or batches change the choice too",
}
QUOTING: Final = frozenset({VALUE, FINISH, TOOL, GREEDY, NEAR_TIE})
"""Kinds that quote values of answers; the others name types, counts and events."""


def advice_of(kind: str, client: str) -> str:
    """Return the advice on a kind; what changes LMI bodies only is no advice for others."""
    text = ADVICE[kind]
    is_for_lmi = " LMI " in text and client not in _LMI
    return text.partition("; else ")[2] if is_for_lmi else text
