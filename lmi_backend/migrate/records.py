"""Read one recorded exchange: our JSON line, SageMaker's data capture, a trace of Envoy's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from lmi_backend.migrate.exchange import (
    INVOCATIONS,
    BadRecordError,
    RecordedAnswer,
    RecordedExchange,
    Request,
    decoded,
    headers_of,
    instant_of,
    kind_shown,
    number_of,
    path_of,
    plain,
    sent_headers,
    typed,
    without_encoding,
)
from lmi_backend.printable import printable

_ANSWER: Final = frozenset({"status", "headers", "body", "body_base64", "events", "seconds"})
JSON: Final = "application/json"


def read_record(record: Any, place: str) -> RecordedExchange:
    """Return the exchange of a JSON line.

    Raises:
        BadRecordError: it is none.
    """
    if not isinstance(record, dict):
        raise BadRecordError(f"is {kind_shown(record)}; accepted: an object")
    if "captureData" in record:
        return _captured(record, place)
    if "path" in record:
        return _line(record, place)
    if BUFFERED in record or STREAMED in record:
        return read_tap(record, place)
    names = ", ".join(printable(str(name), 20) for name in list(record)[:5])
    raise BadRecordError(f"has neither path nor captureData; it has {names or 'no member'}")


def _line(record: Mapping[str, Any], place: str) -> RecordedExchange:
    body = _body(record, "")
    method = typed(record, "method", str, "POST" if body else "GET")
    headers = headers_of(record.get("headers"), "headers")
    if isinstance(record.get("body"), (dict, list)):
        headers = without_encoding(headers, JSON)
    request = Request(path_of(record["path"]), body, method.upper(), sent_headers(headers))
    return RecordedExchange(
        request, _answer(record.get("answer")), place, number_of(record, "time")
    )


def _answer(answer: Any) -> RecordedAnswer | None:
    if answer is None:
        return None
    if not isinstance(answer, dict) or not answer.keys() <= _ANSWER or not answer:
        # The body alone.
        data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        return RecordedAnswer(None, {}, data)
    status = answer.get("status")
    if status is not None and (isinstance(status, bool) or not isinstance(status, int)):
        raise BadRecordError(
            f"answer.status is {kind_shown(status)}; accepted: a number such as 200"
        )
    headers = headers_of(answer.get("headers"), "answer.headers")
    arrivals: tuple[float, ...] = ()
    if "events" in answer:
        events = _events(answer["events"])
        arrivals = tuple(seconds for seconds, _ in events)
        body = b"".join(data for _, data in events)
    else:
        body = _body(answer, "answer.")
    body, headers = plain(body, headers)
    if not isinstance(answer.get("body", ""), str):
        headers = without_encoding(headers, JSON)
    return RecordedAnswer(status, headers, body, arrivals, number_of(answer, "seconds"))


def _events(events: Any) -> list[tuple[float, bytes]]:
    if not isinstance(events, list):
        raise BadRecordError(f"answer.events is {kind_shown(events)}; accepted: a list")
    found = []
    for event in events:
        match event:
            case [int() | float() as seconds, str() as text]:
                found.append((float(seconds), text.encode()))
            case [int() | float() as seconds, {"base64": str() as text}]:
                found.append((float(seconds), decoded(text, "answer.events")))
            case _:
                raise BadRecordError("answer.events has a wrong one; accepted: [SECONDS, TEXT]")
    return found


def _captured(record: Mapping[str, Any], place: str) -> RecordedExchange:
    data = typed(record, "captureData", dict, {})
    if not isinstance(given := data.get("endpointInput"), dict):
        raise BadRecordError("captureData has no endpointInput: only answers were captured")
    about = typed(record, "eventMetadata", dict, {})
    headers = {"content-type": typed(given, "observedContentType", str, JSON)}
    if isinstance(own := about.get("customAttributes"), list) and own:
        headers["x-amzn-sagemaker-custom-attributes"] = ",".join(map(str, own))
    for name, header in _METADATA.items():
        if isinstance(value := about.get(name), str):
            headers[header] = value
    request = Request(INVOCATIONS, _data(given, "endpointInput"), "POST", headers)
    answer = None
    if isinstance(output := data.get("endpointOutput"), dict):
        kind = typed(output, "observedContentType", str, "")
        # A capture has no status: SageMaker writes it for answers of any.
        answer = RecordedAnswer(
            None, {"content-type": kind} if kind else {}, _data(output, "endpointOutput")
        )
    return RecordedExchange(request, answer, place, instant_of(about.get("inferenceTime")))


_METADATA: Final = {
    "inferenceId": "x-amzn-sagemaker-inference-id",
    "targetModel": "x-amzn-sagemaker-target-model",
}


def _data(part: Mapping[str, Any], name: str) -> bytes:
    data = typed(part, "data", str, "")
    encoding = typed(part, "encoding", str, "JSON").upper()
    return decoded(data, f"{name}.data") if encoding == "BASE64" else data.encode()


def _body(record: Mapping[str, Any], prefix: str) -> bytes:
    if "body_base64" in record:
        text = typed(record, "body_base64", str, "")
        return decoded(text, f"{prefix}body_base64")
    body = record.get("body")
    if body is None:
        return b""
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


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
    headers = headers_of(asked.get("headers"), "request.headers")
    body = _tap_body(asked, "request")
    request = Request(
        path_of(headers.get(":path")), body, headers.get(":method", "POST"), sent_headers(headers)
    )
    given = typed(trace, "response", dict, {})
    # Only with `record_headers_received_time`.
    at = instant_of(asked.get("headers_received_time"))
    return RecordedExchange(request, _tap_answer(given) if given else None, place, at)


def _tap_answer(given: Mapping[str, Any]) -> RecordedAnswer:
    headers = headers_of(given.get("headers"), "response.headers")
    status = headers.get(":status", "")
    if not status.isdecimal():
        raise BadRecordError("the response has no :status")
    body, kept = plain(_tap_body(given, "response"), headers)
    shown = {name: value for name, value in kept.items() if not name.startswith(":")}
    return RecordedAnswer(int(status), shown, body)


def _tap_body(message: Mapping[str, Any], name: str) -> bytes:
    body = typed(message, "body", dict, {})
    if body.get("truncated") is True:
        limit = "max_buffered_rx_bytes" if name == "request" else "max_buffered_tx_bytes"
        raise BadRecordError(f"the body of the {name} was cut: raise {limit} in Envoy's tap")
    if "as_string" in body:
        text: str = typed(body, "as_string", str, "")
        return text.encode()
    return decoded(typed(body, "as_bytes", str, ""), f"{name}.body.as_bytes")
