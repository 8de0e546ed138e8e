"""Read one trace of Envoy's tap filter: a request and its answer, buffered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lmi_backend.replay.exchange import RecordedAnswer, RecordedExchange, Request, sent_headers
from lmi_backend.replay.members import (
    BadRecordError,
    decoded,
    instant_of,
    pairs_of,
    path_of,
    plain,
    typed,
)

BUFFERED: Final = "http_buffered_trace"
STREAMED: Final = "http_streamed_trace_segment"


def read_tap(record: Mapping[str, Any], place: str) -> RecordedExchange:
    """Return the exchange of a trace.

    Raises:
        BadRecordError: it is none, or it was cut.
    """
    if STREAMED in record:
        raise BadRecordError("is a segment of a streamed trace; accepted: buffered traces")
    trace = typed(record, BUFFERED, dict, {})
    asked = typed(trace, "request", dict, {})
    headers = _headers(asked, "request")
    body = _body(asked, "request")
    request = Request(
        path_of(headers.get(":path")), body, headers.get(":method", "POST"), sent_headers(headers)
    )
    given = typed(trace, "response", dict, {})
    # Only with `record_headers_received_time`.
    at = instant_of(asked.get("headers_received_time"))
    return RecordedExchange(request, _answer(given) if given else None, place, at)


def _answer(given: Mapping[str, Any]) -> RecordedAnswer:
    headers = _headers(given, "response")
    status = headers.get(":status", "")
    if not status.isdecimal():
        raise BadRecordError("the response has no :status")
    body, kept = plain(_body(given, "response"), headers)
    shown = {name: value for name, value in kept.items() if not name.startswith(":")}
    return RecordedAnswer(int(status), shown, body)


def _headers(message: Mapping[str, Any], name: str) -> dict[str, str]:
    pairs = message.get("headers")
    if not isinstance(pairs, list) or not all(isinstance(each, dict) for each in pairs):
        raise BadRecordError(f"{name}.headers is missing or wrong; accepted: a list of objects")
    named = ({"name": each.get("key"), "value": each.get("value", "")} for each in pairs)
    return pairs_of(list(named), f"{name}.headers")


def _body(message: Mapping[str, Any], name: str) -> bytes:
    body = typed(message, "body", dict, {})
    if body.get("truncated") is True:
        limit = "max_buffered_rx_bytes" if name == "request" else "max_buffered_tx_bytes"
        raise BadRecordError(f"the body of the {name} was cut: raise {limit} in Envoy's tap")
    if "as_string" in body:
        text: str = typed(body, "as_string", str, "")
        return text.encode()
    return decoded(typed(body, "as_bytes", str, ""), f"{name}.body.as_bytes")
