"""What SageMaker's service makes of a container's answers."""

import json

import pytest
from botocore.eventstream import EventStreamBuffer

from lmi_backend.clients.openai.form import HttpForm
from lmi_backend.clients.sagemaker.errors import sagemaker_failure
from lmi_backend.clients.sagemaker.form import InvokeForm, StreamForm
from lmi_backend.errors import EngineDeadError, HttpError, LmiError, RequestError, UnknownModelError
from lmi_backend.generation import Chunk, HttpChunk


def _chunks(status: int, *parts: bytes) -> list[Chunk]:
    head = {"content-type": "application/json"}
    chunks = [HttpChunk(part, status=status, headers=head) for part in parts]
    chunks[-1].is_last = True
    return list(chunks)


def test_an_answer_passes() -> None:
    form = InvokeForm(HttpForm())
    assert form.write(_chunks(200, b"a", b"b")) == b"ab"
    assert (form.status, form.is_over) == (200, True)
    assert form.headers["x-amzn-invoked-production-variant"] == "AllTraffic"


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
    ],
)
def test_errors(error: LmiError, status: int, kind: str) -> None:
    failure = sagemaker_failure(error)
    assert (failure.status, failure.headers["x-amzn-errortype"]) == (status, kind)
    assert json.loads(failure.data)["Message"]
    assert ("retry-after" in failure.headers) == (status in (429, 503))
