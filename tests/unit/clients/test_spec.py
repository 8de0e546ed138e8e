"""Errors in the format of each client, and what a form adds to the reply that it writes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from lmi_backend.clients.lmi import LmiForm, as_management
from lmi_backend.clients.registry import CLIENTS
from lmi_backend.clients.spec import answers_of
from lmi_backend.errors import (
    HttpError,
    LmiError,
    RequestError,
)
from lmi_backend.generation import Delta, GenerateRequest, HttpChunk, Sampling


def _type(client: str, status: int) -> str:
    answer = json.loads(CLIENTS[client].failure(HttpError(status, "it is wrong")).data)
    return str(answer["error_type"] if client == "tgi" else answer["error"]["type"])


@pytest.mark.parametrize(
    ("client", "status", "kind"),
    [
        ("openai", 400, "BadRequestError"),
        ("openai", 401, "AuthenticationError"),
        ("openai", 404, "NotFoundError"),
        ("openai", 405, "MethodNotAllowedError"),
        ("openai", 409, "ConflictError"),
        ("openai", 413, "RequestEntityTooLargeError"),
        ("openai", 422, "UnprocessableEntityError"),
        ("openai", 429, "RateLimitError"),
        ("openai", 499, "ClientClosedRequest"),
        ("openai", 500, "InternalServerError"),
        ("openai", 503, "ServiceUnavailableError"),
        ("openai", 504, "GatewayTimeoutError"),
        # HTTP has no such statuses.
        ("openai", 498, "BadRequestError"),
        ("openai", 599, "InternalServerError"),
        ("anthropic", 404, "not_found_error"),
        ("anthropic", 405, "invalid_request_error"),
        ("anthropic", 408, "invalid_request_error"),
        ("anthropic", 429, "rate_limit_error"),
        ("anthropic", 499, "invalid_request_error"),
        ("anthropic", 503, "overloaded_error"),
        ("anthropic", 599, "api_error"),
        ("tgi", 405, "validation"),
        ("tgi", 500, "generation"),
    ],
)
def test_types_are_those_that_clients_know(client: str, status: int, kind: str) -> None:
    assert _type(client, status) == kind


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


def _kinds(kind: type[LmiError] = LmiError) -> Iterator[type[LmiError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _kinds(each)


MADE: dict[str, tuple[Any, ...]] = {
    "OptionError": ("is wrong",), "RequestError": ("is wrong",), "LaterError": ("later", 3),
    "LoadingError": ("loads", 3), "LateError": ("is late", 3), "UnknownModelError": ("a",),
    "HttpError": (404, "adapter a is not registered"),
}  # fmt: skip
NAMED: dict[str, dict[str, Any]] = {
    "OptionError": {"option": "option.a", "origin": "here"}, "RequestError": {"field": "a"},
}  # fmt: skip
OF_THE_CORE = [
    kind(*MADE.get(kind.__name__, ("it is wrong",)), **NAMED.get(kind.__name__, {}))
    for kind in dict.fromkeys(_kinds())
    if kind.__module__ == LmiError.__module__
]
QUOTED = {"code": 400, "type": "BadRequestException", "message": "adapter a is not registered"}
OF_OTHERS = [
    HttpError(400, json.dumps(body))
    for body in (
        QUOTED, {"code": 424, "error": "it is wrong"}, {"error": QUOTED}, {"detail": "it is wrong"},
        {"error": {"message": json.dumps(QUOTED)}}, {"message": json.dumps({"error": QUOTED})},
        {"detail": json.dumps({"a": 1})}, {"a": {"b": 1}}, {},
    )
]  # fmt: skip
"""Errors in the words of an engine's server, or of another client."""
QUOTE = ("lmi", "sagemaker")
"""Clients who get the body of an engine's server as it is."""


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)
    elif isinstance(value, str):
        yield value


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except ValueError:
        return False


@pytest.mark.parametrize("error", OF_THE_CORE, ids=lambda error: type(error).__name__)
def test_the_cores_words_reach_each_client_as_they_are(error: LmiError) -> None:
    """No message is JSON, and none speaks of another thing: what is not found has its own name."""
    assert not _is_object(str(error))
    for name, spec in CLIENTS.items():
        failure = spec.failure(error)
        texts = list(_texts(json.loads(failure.data)))
        # AWS's libraries get the answer of the container in theirs.
        shown = [json.loads(failure.data).get("OriginalMessage", "")] if name == "sagemaker" else []
        assert any(str(error) in text for text in texts + list(_texts([*map(_read, shown)]))), name
        assert name == "sagemaker" or not any(map(_is_object, texts)), name


def _read(text: str) -> Any:
    return json.loads(text) if _is_object(text) else text


@pytest.mark.parametrize("error", OF_OTHERS, ids=str)
def test_a_message_is_never_json_whoever_wrote_the_error(error: LmiError) -> None:
    for name in CLIENTS.keys() - set(QUOTE):
        texts = list(_texts(json.loads(CLIENTS[name].failure(error).data)))
        assert texts
        assert not any(map(_is_object, texts)), (name, texts)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "BadRequestException"), (404, "AdapterNotFoundException"), (409, "ConflictException"),
     (424, "ModelException")],
)  # fmt: skip
def test_errors_about_adapters_are_lmis_to_lmis_clients_alone(status: int, kind: str) -> None:
    error = HttpError(status, "adapter ä is wrong")
    failure = CLIENTS["lmi"].failure(as_management(error))
    body = {"code": status, "type": kind, "message": "adapter ä is wrong"}
    assert (failure.status, json.loads(failure.data)) == (status, body)
    assert as_management(found := RequestError("is wrong", field="name")) is found


class Reply:
    """Notes what it is given."""

    content_type, body = "text/plain", None

    def __init__(self) -> None:
        self.calls: list[tuple[list[Any], bool]] = []

    def responses(self, chunks: list[Any], *, is_last: bool) -> list[dict[str, Any]]:
        self.calls.append((chunks, is_last))
        return [{"response": chunk.text} for chunk in chunks]


def test_a_reply_is_over_with_its_last_answer() -> None:
    reply: Any = Reply()
    form = LmiForm(reply, 2)
    assert form.write([Delta(index=0, text="a"), Delta(index=1, text="b", finish_reason="stop")])
    assert not form.is_over
    assert form.write([Delta(index=0, text="c"), Delta(index=0, text="d", finish_reason="stop")])
    assert form.is_over
    # The pieces of an answer come as one.
    assert [([each.text for each in chunks], last) for chunks, last in reply.calls] == [
        (["a", "b"], False),
        (["cd"], True),
    ]


def test_answers_are_those_of_all_prompts() -> None:
    request = GenerateRequest(prompt="a", sampling=Sampling(), n=3)
    assert (answers_of((request, request)), answers_of((request,)), answers_of(b"{}")) == (6, 3, 1)
