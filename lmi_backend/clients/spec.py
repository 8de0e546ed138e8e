"""What is known of each kind of client, and the contracts of what answers it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

from lmi_backend.errors import (
    CancelledError,
    DeadlineError,
    HttpError,
    LmiError,
    RequestError,
    StoppingError,
)
from lmi_backend.generation import Chunk, GenerateRequest, HttpRequest

if TYPE_CHECKING:
    from lmi_backend.engine_config import Context

Who = Literal["probe", "anybody", "client", "operator"]
"""Whose key a path needs, where keys are needed."""
PROBE: Final[Who] = "probe"
"""No key, and any name of the server: load balancers have their own."""
ANYBODY: Final[Who] = "anybody"
OPERATOR: Final[Who] = "operator"
RELAY: Final = "relay"
"""Action of a path whose bodies the engine's own server reads and answers."""
UPLOAD: Final = "relay upload"
"""Action of a path whose body is a file with fields, which the engine's own server reads."""
STORED: Final = "relay stored"
"""Action of a path without a body, that names what the engine's own server has."""
INVOKE: Final = "invoke"
"""Action of a path whose bodies are read as LMI's."""
READ: Final = "read"
"""Action of a path whose bodies the client's `read` reads, and whose answers it writes."""
DESCRIPTION: Final = "/openapi.json"
"""Path at which the engine's own server describes its paths, and the front end all of them."""
TARGET: Final = "x-amzn-sagemaker-target-model"
"""The header by which clients that have no field for it name a model."""


class Read(NamedTuple):
    """What a body wants."""

    work: tuple[GenerateRequest, ...] | HttpRequest | AdapterChange
    form: Form
    """Makes a response of the answer."""
    tenant: str = ""
    """On whose behalf, as the request says."""
    failure: Callable[[LmiError], ErrorResponse] | None = None
    """Returns the response of an error that comes before anything else; else the client's does."""
    dropped: tuple[str, ...] = ()
    """Parameters that change nothing."""


def model_named(body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    """Return the model that a body or a header names; empty if neither does."""
    return str(body.get("model") or headers.get(TARGET, ""))


@dataclass(frozen=True)
class Path:
    """A path on which a client sends requests."""

    template: str
    """With names in braces."""
    action: str
    """What answers there, as the front end calls it."""
    methods: str = "POST"
    """With blanks between."""
    who: Who = "client"
    takes_place: bool = False
    """Whether a request waits for its turn, and takes a place of the engine's."""
    counts_n: bool = False
    """Whether a request may have several answers, and takes a place for each."""
    can_resume: bool = False
    """Whether another worker can continue a stream: the same tokens make the same bytes."""
    by_tensor: bool = False
    """Whether a body may come as the tensor `request`, with the path as the tensor `path`."""
    read: Callable[[dict[str, Any], Context], Read] | None = None
    """Reads a body whose action is `READ`. Raises LmiError: it is wrong."""
    wrap: Callable[[Form], Form] | None = None
    """Makes the answer of what LMI's clients would get, where the action is `INVOKE`."""
    member: str = ""
    """Member of a body by which it is this client's, where the path is another client's too."""
    accept: str = "accept"
    """Header that says which content type is wanted."""


def generating(template: str, action: str, **more: Any) -> Path:
    """Return a path of generated answers, whose streams another worker can continue."""
    return Path(template, action, takes_place=True, counts_n=True, can_resume=True, **more)


@dataclass(frozen=True, kw_only=True)
class ClientSpec:
    """A kind of client."""

    name: str
    """Of its module."""
    title: str
    """In documents."""
    paths: tuple[Path, ...]
    failure: Callable[[LmiError], ErrorResponse]
    """Returns the response of an error that comes before anything else."""
    form: Callable[[], Form]
    """Makes a response of what an HTTP application answers, errors in the middle included."""
    model_named: Callable[[Mapping[str, Any], Mapping[str, str]], str] = model_named
    """Returns the model that a body or its headers name; empty if none is named."""


_RETRY_SECONDS: Final = 1
_UNSERVED: Final = "the model's engine does not serve this path"
_UNNAMED: Final = "the engine's error has no message"
_MESSAGES: Final = ("error", "detail", "message")
"""Members of a body in which an error has its message, or an object with it."""
RETRYABLE: Final = frozenset({429, 503})
"""Statuses with which a client is told when to try again."""


class ErrorResponse(NamedTuple):
    """An error's response."""

    status: int
    data: bytes
    headers: dict[str, str]


def status_of(error: LmiError) -> int:
    """Return the HTTP status of an error, for clients that tell a request's faults from ours."""
    if isinstance(error, HttpError):
        return error.status
    if isinstance(error, RequestError):
        return 400
    if isinstance(error, CancelledError):
        return 499
    if isinstance(error, DeadlineError):
        return 504
    return 503 if error.retryable else 500


def failure(status: int, body: object, error: LmiError) -> ErrorResponse:
    """Return the response of an error.

    Args:
        status: the response's.
        body: what is written as JSON; a text is JSON already.
        error: whose headers the response has.
    """
    headers = {"content-type": "application/json"}
    if status in RETRYABLE:
        headers["retry-after"] = str(getattr(error, "seconds", _RETRY_SECONDS))
    if isinstance(error, StoppingError):
        # A model may stop a moment before this process is told to.
        headers["connection"] = "close"
    if status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    return ErrorResponse(status, text.encode(), headers)


def is_object(text: str) -> bool:
    """Return whether the text of an error is a body already."""
    return text.startswith("{")


def body_of(error: LmiError) -> dict[str, Any]:
    """Return what an HTTP error's JSON body holds; nothing for any other error."""
    return _object_in(str(error)) if isinstance(error, HttpError) else {}


def message_of(error: LmiError) -> str:
    """Return the message of an error, whose body may have OpenAI's, LMI's or FastAPI's format."""
    body = body_of(error)
    if body.get("detail") == HTTPStatus.NOT_FOUND.phrase:
        return _UNSERVED
    text = str(error)
    # An error may have passed through several programs, each of which quotes the one before.
    while body or text == "{}":
        message = next((body[name] for name in _MESSAGES if body.get(name)), _UNNAMED)
        body = message if isinstance(message, dict) else _object_in(text := str(message))
    return text


def _object_in(text: str) -> dict[str, Any]:
    """Return the object that a text is in JSON; empty if it is none."""
    try:
        body: dict[str, Any] = json.loads(text) if is_object(text) else {}
    except (ValueError, RecursionError):
        return {}
    return body


JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
LINES: Final = ("application/jsonlines", "application/x-ndjson")


_SPLITTING: Final = (
    (b"\xc2\x85", rb"\u0085"), (b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"),
)  # fmt: skip


def on_one_line(data: bytes) -> bytes:
    """Return JSON as a line for any reader: some split at characters that end a line elsewhere."""
    for raw, escaped in _SPLITTING:
        data = data.replace(raw, escaped)
    return data


class Ending(NamedTuple):
    """What is sent where an answer fails after it has begun."""

    data: bytes = b""
    is_end: bool = False
    """Whether the data tells the client of the error, so that the response may end after it.

    Otherwise the connection is closed without the end of the response.
    """


class Form(Protocol):
    """Makes an HTTP response of chunks."""

    @property
    def status(self) -> int:
        """Known after the first `write`, as `headers` are."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Without those of a connection."""

    @property
    def is_over(self) -> bool:
        """Whether the answer is complete."""

    @property
    def is_failed(self) -> bool:
        """Whether the engine's own events report an error."""

    def write(self, chunks: list[Chunk]) -> bytes:
        """Return the bytes to send for some chunks. Raises LmiError: the answer is an error."""

    def failure(self, error: LmiError) -> Ending:
        """Return what is sent where an answer fails after it has begun."""


@runtime_checkable
class Restorable(Form, Protocol):
    """Can continue the events that another one has made."""

    def taken(self) -> Chunk | None:
        """Return what it has got of its only answer, as one; None if that is not known."""

    def restore(self, state: Any, num_events: int) -> None:
        """Take what another one has `taken`, and has made so many events of."""


def answers_of(work: object) -> int:
    """Return how many answers a request wants."""
    if isinstance(work, tuple):
        return sum(request.n for request in work)
    return 1


def named_event(name: str, data: bytes) -> bytes:
    """Return a server-sent event that has a name."""
    return b"event: " + name.encode() + b"\ndata: " + on_one_line(data) + b"\n\n"


Value = str | bytes | int | float
Output = Value | list[str] | list[int] | list[float]
"""Value of an output tensor; a list has one element for each answer or token."""
Response = dict[str, Output]


class Reply(Protocol):
    """Turns the chunks of one request's answers into responses of named outputs."""

    outputs: frozenset[str]
    """Names of the optional outputs that are wanted."""

    def responses(self, chunks: Sequence[Chunk], *, is_last: bool) -> list[Response]:
        """Return the responses to send now.

        Args:
            chunks: what has come since the last call, at most one chunk of each answer.
            is_last: nothing more will come; then there is at least one response.

        Raises:
            LmiError: the answer is an error.
        """

    def failure(self, error: LmiError) -> LmiError:
        """Return an error as this client would read it."""


INPLACE: Final = "load_inplace"
"""vLLM's parameter that has a known adapter loaded again, perhaps from another folder."""


@dataclass(frozen=True)
class AdapterChange:
    """A management request: what is to happen to which LoRA adapter."""

    body: dict[str, object]
    """Members of LMI's management API, and perhaps `load_inplace`."""


@dataclass(frozen=True)
class Cancel:
    """A request to end the running request of the same id."""


@dataclass(frozen=True)
class ParsedRequest:
    """A request that was understood."""

    work: tuple[GenerateRequest, ...] | HttpRequest | AdapterChange | Cancel
    reply: Reply
    dropped: tuple[str, ...] = ()
    """Parameters that change nothing, as in LMI; worth a line in the log."""
    tenant: str = ""
    """On whose behalf, as the request says; empty for the tenant all others share."""
    promise: tuple[int, int] = (0, 0)
    """See `promise_of` (request.py)."""
    session: str = ""
    """Name that its client gives; requests of one session have much in common."""


def rename_prompt(error: LmiError, field: str) -> LmiError:
    """Return an error that calls the prompt what the client calls it."""
    if isinstance(error, RequestError) and error.field == "prompt":
        return RequestError(error.detail, field=field)
    return error
