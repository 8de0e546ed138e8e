"""What SageMaker's service makes of a container's answers."""

import json

import pytest

from lmi_backend.errors import EngineDeadError, HttpError, LmiError, RequestError
from lmi_backend.frontend.http_form import HttpForm
from lmi_backend.frontend.models import UnknownModelError
from lmi_backend.frontend.sagemaker import InvokeForm, StreamForm, sagemaker_failure
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
    said = json.loads(form.write([last]))
    assert (form.status, form.headers["x-amzn-errortype"]) == (424, "ModelError")
    assert (said["OriginalStatusCode"], said["OriginalMessage"]) == (404, '{"error": 1}')


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
