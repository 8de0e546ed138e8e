"""SageMaker's headers and events, and what its service makes of a container's answers."""

import json

import botocore.session
import pytest
from botocore.eventstream import EventStreamBuffer

from lmi_backend.clients.openai import HttpForm
from lmi_backend.clients.sagemaker import (
    HARMLESS,
    HINTS,
    InvokeForm,
    StreamForm,
    check_extras,
    payload_parts,
    sagemaker_failure,
    stream_error,
    target_of,
)
from lmi_backend.errors import EngineDeadError, HttpError, LmiError, RequestError, UnknownModelError
from lmi_backend.generation import Chunk, HttpChunk

PREFIX = "x-amzn-sagemaker-"


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"enable-explanations": "probability > `0.8`"}, "EnableExplanations"),
        ({}, ""),
        ({"session-id": "0f3c"}, ""),
        ({"enable-explanations": "`false`"}, ""),
        ({"inference-id": "a", "target-variant": "AllTraffic", "custom-attributes": "a=b"}, ""),
    ],
)
def test_what_the_service_would_add_is_refused(headers: dict[str, str], words: str) -> None:
    given = {PREFIX + name: value for name, value in headers.items()}
    if not words:
        check_extras(given, {})
        return
    with pytest.raises(HttpError, match=words) as refused:
        check_extras(given, {})
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("headers", "target"),
    [
        ({}, ""),
        ({"target-variant": "AllTraffic"}, ""),
        ({"inference-component": "a"}, "a"),
        ({"target-container-hostname": "a"}, "a"),
        ({"target-container-hostname": "a", "target-model": "b"}, "b"),
    ],
)
def test_a_header_may_name_the_model(headers: dict[str, str], target: str) -> None:
    assert target_of({PREFIX + name: value for name, value in headers.items()}) == target


@pytest.mark.parametrize("operation", ["InvokeEndpoint", "InvokeEndpointWithResponseStream"])
def test_each_member_of_an_invocation_is_known(operation: str) -> None:
    service = botocore.session.get_session().get_service_model("sagemaker-runtime")
    members = {*service.operation_model(operation).input_shape.members}
    named = {"InferenceComponentName", "TargetContainerHostname", "TargetModel"}
    read = {"Accept", "Body", "ContentType", "EnableExplanations", "EndpointName", *named}
    assert {"Body", "EndpointName"} <= members <= read | HARMLESS.keys() | {*HINTS}


def _read(data: bytes) -> list[tuple[dict[str, str], bytes]]:
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    return [(dict(event.headers), event.payload) for event in buffer]


def test_a_part_holds_the_bytes() -> None:
    ((headers, payload),) = _read(payload_parts(b"some \xff bytes"))
    assert (headers[":message-type"], headers[":event-type"]) == ("event", "PayloadPart")
    assert payload == b"some \xff bytes"


def test_an_error_ends_a_stream() -> None:
    ((headers, payload),) = _read(stream_error("the engine died: ÿ"))
    assert headers[":exception-type"] == "ModelStreamError"
    assert json.loads(payload)["Message"] == "the engine died: ÿ"


def _chunks(status: int, *parts: bytes) -> list[Chunk]:
    head = {"content-type": "application/json"}
    chunks = [HttpChunk(part, status=status, headers=head) for part in parts]
    chunks[-1].is_last = True
    return list(chunks)


@pytest.mark.parametrize("kind", [InvokeForm, StreamForm])
def test_an_error_that_comes_in_parts_is_one_model_error(kind: type[InvokeForm]) -> None:
    form = kind(HttpForm())
    first, last = _chunks(404, b'{"error":', b" 1}")
    assert form.write([first]) == b""
    answer = json.loads(form.write([last]))
    assert (form.status, form.headers["x-amzn-errortype"]) == (424, "ModelError")
    assert (answer["OriginalStatusCode"], answer["OriginalMessage"]) == (404, '{"error": 1}')


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("text/event-stream; charset=utf-8", [b"data: 1\n\n", b"event: a\ndata: 2\n\n"]),
        ("text/event-stream", [b"data: 1\r\n\r\n", b": ping\n\n", b"data: [DONE]\n\n\n"]),
        ("application/jsonlines", [b'{"a": 1}\n', b'{"b": 2}\r\n\r\n', b'{"c']),
        ("application/x-ndjson", [b"1\n", b"2\n"]),
        ("application/json", [b'{\n\n"a": 1}\n']),
        ("text/plain", [b"a\n\nb\n"]),
    ],
)
def test_each_event_or_line_is_a_part(kind: str, parts: list[bytes]) -> None:
    form = StreamForm(HttpForm())
    whole = HttpChunk(b"".join(parts), headers={"content-type": kind}, is_last=True)
    buffer = EventStreamBuffer()
    buffer.add_data(form.write([whole]))
    assert [event.payload for event in buffer] == parts


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (RequestError("is wrong", field="inputs"), 424, "ModelError"),
        (HttpError(424, '{"code": 424}'), 424, "ModelError"),
        (EngineDeadError("gone"), 503, "ServiceUnavailable"),
        (HttpError(401, "a key is needed"), 403, "UnrecognizedClientException"),
        (HttpError(429, "too many"), 429, "ThrottlingException"),
        (HttpError(413, "too large"), 400, "ValidationError"),
        (UnknownModelError("x"), 400, "ValidationError"),
        (HttpError(404, "it is not served"), 404, "UnknownOperationException"),
        (HttpError(405, "GET is not served here"), 405, "MethodNotAllowedException"),
        (HttpError(404, '{"error": "by the container"}'), 424, "ModelError"),
    ],
)
def test_errors(error: LmiError, status: int, kind: str) -> None:
    failure = sagemaker_failure(error)
    assert (failure.status, failure.headers["x-amzn-errortype"]) == (status, kind)
    assert json.loads(failure.data)["Message"]
    assert ("retry-after" in failure.headers) == (status in (429, 503))
