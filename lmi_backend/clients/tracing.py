"""The trace a request belongs to, as W3C's Trace Context writes it."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from lmi_backend.generation import GenerateRequest, HttpRequest

PARENT: Final = "traceparent"
"""Without this header the other one counts for nothing."""
HEADERS: Final = (PARENT, "tracestate")
# https://www.w3.org/TR/trace-context/#traceparent-header
_PARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
# The standard wants 512 characters of tracestate kept.
_LONGEST: Final = 2048


def take_trace(parameters: dict[str, object]) -> dict[str, str]:
    """Take the headers of a trace out of a request's parameters.

    A broken one is dropped, as the standard wants: tracing must not fail a request.
    """
    given = {name: parameters.pop(name) for name in HEADERS if name in parameters}
    parent = given.get(PARENT)
    if not isinstance(parent, str) or not _may_travel(parent) or not _PARENT.fullmatch(parent):
        return {}
    return {n: text for n, text in given.items() if isinstance(text, str) and _may_travel(text)}


def _may_travel(text: str) -> bool:
    return len(text) <= _LONGEST and text.isprintable()


def with_trace(
    work: tuple[GenerateRequest, ...] | HttpRequest, trace: dict[str, str]
) -> tuple[GenerateRequest, ...] | HttpRequest:
    """Return requests, or a call, that carry the headers of a trace to the engine."""
    if not trace:
        return work
    if isinstance(work, HttpRequest):
        return msgspec.structs.replace(work, headers=work.headers | trace)
    return tuple(msgspec.structs.replace(each, trace_headers=trace) for each in work)
