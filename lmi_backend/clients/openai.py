"""What OpenAI's clients are, with the paths that vLLM's server adds to OpenAI's.

An HTTP application answers them: here are the events and errors of its answers.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.clients.openai_bodies import DONE
from lmi_backend.clients.spec import (
    ANYBODY,
    DESCRIPTION,
    EVENTS,
    JSON,
    LINES,
    OPERATOR,
    RELAY,
    STORED,
    UPLOAD,
    ClientSpec,
    Ending,
    ErrorResponse,
    Path,
    body_of,
    failure,
    generating,
    is_object,
    message_of,
    on_one_line,
    status_of,
)
from lmi_backend.errors import HTTP_ERROR, HttpError
from lmi_backend.generation import HttpChunk, reports_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmi_backend.errors import LmiError
    from lmi_backend.generation import Chunk


CHATS: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"
EMBEDDINGS: Final = "/v1/embeddings"
MODELS: Final = "/v1/models"
TOKENS: Final = "/inference/v1/generate"
"""vLLM's path for prompts that are tokens already, and for answers that stay tokens."""
RESETS: Final = ("/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache")
"""vLLM's paths that empty a cache, here of each worker."""


_TYPES: Final = {
    401: "AuthenticationError", 403: "PermissionDeniedError", 413: "RequestEntityTooLargeError",
    429: "RateLimitError", 499: "ClientClosedRequest",
}  # fmt: skip
"""Types that are not called as HTTP calls their status."""


def openai_failure(error: LmiError) -> ErrorResponse:
    status = status_of(error)
    written = body_of(error).get("error")
    if isinstance(written, dict) and _is_openais(written):
        return failure(status, str(error), error)
    members = {
        "message": message_of(error),
        "type": _type_of(status),
        "param": getattr(error, "field", None),
        "code": status,
    }
    if isinstance(written, dict):
        # An engine's own server calls some types as HTTP calls the status: "Bad Request".
        members = {**written, "message": members["message"], "type": members["type"]}
    return failure(status, {"error": members}, error)


def refusal(error: LmiError) -> HttpChunk:
    """Return an error as an engine's own server answers it."""
    status, data, headers = openai_failure(error)
    return HttpChunk(data, is_last=True, status=status, headers=headers)


def _is_openais(written: dict[str, Any]) -> bool:
    kind, message = written.get("type"), str(written.get("message"))
    return isinstance(kind, str) and kind.isidentifier() and not is_object(message)


def _type_of(status: int) -> str:
    if (name := _TYPES.get(status)) is not None:
        return name
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Bad Request" if status < HTTPStatus.INTERNAL_SERVER_ERROR else ""
    name = "".join(filter(str.isalnum, phrase.title())).removesuffix("Error")
    return f"{name or 'InternalServer'}Error"


# Of one connection; an application's answer may not say them.
_HOP_BY_HOP: Final = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive"})


class HttpForm:
    """The answer of an HTTP application, byte by byte; its events are OpenAI's."""

    passes_events = True
    """Whether events may reach the client without `write`: it changes none of them."""

    has_json = True
    """Whether each event is JSON."""

    def __init__(self) -> None:
        self.status, self.is_over, self.is_failed = 0, False, False
        self.headers: Mapping[str, str] = {}
        self.has_events = False

    def taken(self) -> HttpChunk | None:
        """See `Restorable`; as many lines were written as came, so that the model can resume."""
        return HttpChunk(headers=dict(self.headers)) if self.passes_events else None

    def restore(self, state: HttpChunk, num_events: int) -> None:
        self.write([state])

    def write(self, chunks: list[Chunk]) -> bytes:
        """Return the application's bytes. Raises HttpError: it reports an error amid its answer."""
        data: list[bytes] = []
        for chunk in chunks:
            if not isinstance(chunk, HttpChunk):
                continue
            if not self.status:
                self._begin(chunk)
            elif chunk.status >= HTTP_ERROR > self.status:
                raise HttpError(chunk.status, chunk.data.decode("utf-8", "replace"))
            data.append(chunk.data)
            self.is_over = self.is_over or chunk.is_last
        written = data[0] if len(data) == 1 else b"".join(data)
        # Looked for here: calls are what an answer costs.
        if (b"\xe2\x80" in written or b"\xc2\x85" in written) and self.has_events and self.has_json:
            written = on_one_line(written)
        self.note(written)
        return written

    def note(self, data: bytes) -> None:
        """Note what the client gets. Events that reach it without `write` are noted too."""
        if self.has_events and reports_error(data):
            self.is_failed = True

    def _begin(self, chunk: HttpChunk) -> None:
        self.status = chunk.status
        self.headers = {n: value for n, value in chunk.headers.items() if n not in _HOP_BY_HOP}
        self.has_events = self.headers.get("content-type", "").startswith(EVENTS)

    def failure(self, error: LmiError) -> Ending:
        """Return an event with the error; other content types have no way to report it."""
        return Ending(self._event(error), is_end=True) if self.has_events else Ending()

    def _event(self, error: LmiError) -> bytes:
        return b"data: " + on_one_line(openai_failure(error).data) + b"\n\n" + DONE


class RefusingForm(HttpForm):
    """The answer of an HTTP application; its refusal is written as its client reads errors."""

    def __init__(self) -> None:
        super().__init__()
        self._refusal: list[bytes] = []

    def write(self, chunks: list[Chunk]) -> bytes:
        """See `HttpForm`. Raises HttpError: the answer is an error, in any format."""
        data = super().write(chunks)
        if self.status < HTTP_ERROR:
            return data
        self._refusal.append(data)
        if self.is_over:
            raise HttpError(self.status, b"".join(self._refusal).decode("utf-8", "replace"))
        return b""


class WholeForm(RefusingForm):
    """The answer of an HTTP application that is another one to its client, once it is whole.

    Args:
        change: makes the client's.
        content_type: of the client's.
    """

    passes_events = False

    def __init__(self, change: Callable[[bytes], bytes], content_type: str = JSON) -> None:
        super().__init__()
        self._whole, self._change, self._content_type = b"", change, content_type

    def write(self, chunks: list[Chunk]) -> bytes:
        self._whole += super().write(chunks)
        if not self.is_over:
            return b""
        self.headers = {"content-type": self._content_type}
        return self._change(self._whole)


_END: Final = b"\n\n"
_DATA: Final = b"data:"
_DONE: Final = b"[DONE]"


class LinesForm:
    def __init__(self, inner: HttpForm) -> None:
        self._inner, self._held = inner, b""
        self.status, self.is_over = 0, False
        self.headers: Mapping[str, str] = {}

    @property
    def is_failed(self) -> bool:
        return self._inner.is_failed

    def write(self, chunks: list[Chunk]) -> bytes:
        """See `Form`; an event is held until it is whole."""
        data = self._inner.write(chunks)
        self.status, self.is_over = self._inner.status, self._inner.is_over
        if not self._inner.has_events:
            self.headers = self._inner.headers
            return data
        self.headers = {**self._inner.headers, "content-type": LINES[0]}
        *events, self._held = (self._held + data).split(_END)
        if self.is_over:
            events.append(self._held)
            self._held = b""
        return b"".join(map(_line, events))

    def failure(self, error: LmiError) -> Ending:
        if not self._inner.has_events:
            return self._inner.failure(error)
        return Ending(openai_failure(error).data.strip() + b"\n", is_end=True)


def _line(event: bytes) -> bytes:
    """Return an event's data as a line; nothing for the last event, a comment or an empty one."""
    data = event.strip().removeprefix(_DATA).strip()
    return data + b"\n" if data.startswith(b"{") and data != _DONE else b""


def _work(template: str) -> Path:
    return Path(template, RELAY, takes_place=True, by_tensor=True)


SPEC: Final = ClientSpec(
    name="openai",
    title="OpenAI",
    failure=openai_failure,
    form=RefusingForm,
    paths=(
        generating(CHATS, RELAY, by_tensor=True),
        generating(COMPLETIONS, RELAY, by_tensor=True),
        _work(EMBEDDINGS),
        Path("/tokenize", RELAY, by_tensor=True),
        Path("/detokenize", RELAY, by_tensor=True),
        _work("/pooling"),
        _work("/classify"),
        _work("/score"),
        _work("/v1/score"),
        _work("/rerank"),
        _work("/v1/rerank"),
        _work("/v2/rerank"),
        _work("/v2/embed"),
        _work(TOKENS),
        Path("/v1/audio/transcriptions", UPLOAD, takes_place=True),
        Path("/v1/audio/translations", UPLOAD, takes_place=True),
        *(
            Path(f"{each}/{word}", RELAY, by_tensor=True)
            for each in (CHATS, COMPLETIONS)
            for word in ("render", "derender")
        ),
        Path("/tokenizer_info", STORED, "GET", OPERATOR),
        *(Path(each, STORED, "POST", OPERATOR) for each in RESETS),
        Path(MODELS, "list models", "GET", by_tensor=True),
        Path(f"{MODELS}/{{model:path}}", "show model", "GET"),
        Path("/v1/load_lora_adapter", "load adapter", who=OPERATOR),
        Path("/v1/unload_lora_adapter", "unload adapter", who=OPERATOR),
        Path("/version", "version", "GET", ANYBODY, by_tensor=True),
        Path(DESCRIPTION, "describe paths", "GET"),
        Path("/load", "load", "GET", ANYBODY),
    ),
)
