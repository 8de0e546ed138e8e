"""Errors in the form of each client."""

import json
from http import HTTPStatus

import pytest

from lmi_backend.clients.registry import CLIENTS
from lmi_backend.errors import HttpError, UnavailableError, UnknownModelError
from lmi_backend.generation import HttpChunk

STATUSES = [status.value for status in HTTPStatus if status >= HTTPStatus.BAD_REQUEST] + [499, 599]


def _type(client: str, status: int) -> str:
    answer = json.loads(CLIENTS[client].failure(HttpError(status, "it is wrong")).data)
    return str(answer["error_type"] if client == "tgi" else answer["error"]["type"])


@pytest.mark.parametrize("status", STATUSES)
def test_a_type_tells_whose_fault_it_is(status: int) -> None:
    is_ours = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    for client in ("openai", "responses"):
        is_internal = _type(client, status) == "InternalServerError"
        assert is_ours or not is_internal
        assert _type(client, status).isidentifier()
    assert (_type("anthropic", status) == "api_error") == (is_ours and status not in (503, 504))
    assert (_type("tgi", status) == "generation") == (is_ours and status != 503)


@pytest.mark.parametrize(
    ("client", "status", "kind"),
    [
        ("openai", 405, "MethodNotAllowedError"),
        ("openai", 404, "NotFoundError"),
        ("openai", 409, "ConflictError"),
        ("openai", 413, "RequestEntityTooLargeError"),
        ("openai", 422, "UnprocessableEntityError"),
        ("openai", 500, "InternalServerError"),
        ("openai", 503, "ServiceUnavailableError"),
        ("openai", 504, "GatewayTimeoutError"),
        ("anthropic", 405, "invalid_request_error"),
        ("anthropic", 408, "invalid_request_error"),
        ("anthropic", 503, "overloaded_error"),
        ("tgi", 405, "validation"),
        ("tgi", 500, "generation"),
    ],
)
def test_types_are_those_that_clients_know(client: str, status: int, kind: str) -> None:
    assert _type(client, status) == kind


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (HttpError(404, "it is not served"), 404, "UnknownOperationException"),
        (HttpError(405, "GET is not served here"), 405, "MethodNotAllowedException"),
        (UnknownModelError("x"), 400, "ValidationError"),
        (HttpError(404, '{"error": "by the container"}'), 424, "ModelError"),
        (UnavailableError("later"), 503, "ServiceUnavailable"),
    ],
)
def test_aws_libraries_tell_operations_from_endpoints(
    error: HttpError, status: int, kind: str
) -> None:
    failure = CLIENTS["sagemaker"].failure(error)
    assert (failure.status, failure.headers["x-amzn-errortype"]) == (status, kind)


@pytest.mark.parametrize("client", ["openai", "responses", "anthropic"])
@pytest.mark.parametrize(
    ("status", "body", "kinds", "message"),
    [
        (
            400,
            {"error": {"message": "no", "type": "Bad Request", "param": None, "code": 400}},
            ("BadRequestError", "invalid_request_error"),
            "no",
        ),
        (
            404,
            {"detail": "Not Found"},
            ("NotFoundError", "not_found_error"),
            "the model's engine does not serve this path",
        ),
        (
            422,
            {"detail": [{"msg": "x"}]},
            ("UnprocessableEntityError", "invalid_request_error"),
            "x",
        ),
        (500, {"error": "it broke"}, ("InternalServerError", "api_error"), "it broke"),
    ],
)
def test_a_refusal_of_an_engines_server_is_written_as_its_client_reads_it(
    client: str, status: int, body: object, kinds: tuple[str, str], message: str
) -> None:
    spec, data = CLIENTS[client], json.dumps(body).encode()
    form = spec.form()
    assert form.write([HttpChunk(data[:5], status=status)]) == b""
    with pytest.raises(HttpError) as raised:
        form.write([HttpChunk(data[5:], is_last=True, status=status)])
    failure = spec.failure(raised.value)
    answer = json.loads(failure.data)["error"]
    assert (failure.status, answer["type"]) == (status, kinds[client == "anthropic"])
    assert message in answer["message"]
