"""What clients of LMI and DJLServing are, and how answers on LMI's path are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from lmi_backend.clients.lmi_formats import Lines
from lmi_backend.clients.lmi_reading import (
    BodyReply,
    LegacyChatReply,
    LmiAnswer,
    lmi_failure,
    with_lmi_reasons,
)
from lmi_backend.clients.openai import HttpForm, LinesForm
from lmi_backend.clients.spec import (
    INVOKE,
    LINES,
    OPERATOR,
    PROBE,
    ClientSpec,
    Ending,
    Path,
    answers_of,
)
from lmi_backend.errors import HTTP_ERROR
from lmi_backend.generation import HttpChunk, HttpRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.clients.spec import Form, Reply
    from lmi_backend.errors import LmiError
    from lmi_backend.generation import Chunk, Delta, GenerateRequest


INVOCATIONS: Final = "/invocations"


_EVENT_END: Final = b"\n\n"
_FINISHED: Final = b'"finish_reason":"'


class HandlerForm(HttpForm):
    """The answer of a user's own code, whose clients may not know how LMI reports an error.

    LMI's error is sent where it does not damage the format. The end is missing in any case.
    """

    has_json = False

    def __init__(self) -> None:
        super().__init__()
        self._last_byte = b"\n"

    def note(self, data: bytes) -> None:
        super().note(data)
        self._last_byte = data[-1:] or self._last_byte

    def failure(self, error: LmiError) -> Ending:
        """Return LMI's error as an event or a line; nothing for other content types."""
        message = lmi_failure(error).data.strip()
        if self.has_events:
            # The code may have written a part of an event.
            return Ending(b"\n\ndata: " + message + b"\n\n")
        if self.headers.get("content-type", "").startswith(LINES):
            return Ending((b"" if self._last_byte == b"\n" else b"\n") + message + b"\n")
        return Ending()


class LegacyChatForm(HttpForm):
    """OpenAI's answer, except for its finish reason: see `LegacyChatReply`."""

    passes_events = False

    def __init__(self) -> None:
        super().__init__()
        self._buffered = b""

    def taken(self) -> HttpChunk | None:
        is_complete = self.has_events and not self._buffered
        return HttpChunk(headers=dict(self.headers)) if is_complete else None

    def write(self, chunks: list[Chunk]) -> bytes:
        """See `HttpForm`; a body is held until it is whole, and an event too."""
        data = self._buffered + super().write(chunks)
        end = len(data)
        if not self.is_over:
            events, mark, _ = data.rpartition(_EVENT_END) if self.has_events else (b"", b"", b"")
            end = len(events + mark)
        data, self._buffered = data[:end], data[end:]
        if self.status >= HTTP_ERROR or _FINISHED not in data:
            return data
        return with_lmi_reasons(data.decode()).encode()


class LmiForm:
    is_failed = False

    def __init__(self, reply: LmiAnswer, answers: int) -> None:
        self.status, self.is_over = 200, False
        self.headers: Mapping[str, str] = {"content-type": reply.content_type}
        self._reply, self._left = reply, answers
        self.lines = reply.body if isinstance(reply.body, Lines) else None
        """Writes the middle of it; None where that is not a line a token."""

    def write(self, chunks: list[Chunk]) -> bytes:
        """See `Form`; most of a stream is tokens in the middle of an only answer."""
        if len(chunks) > 1:
            chunks = _merged(chunks)
        if self.lines is not None and len(chunks) == 1:
            delta: Delta = chunks[0]  # type: ignore[assignment]  # of generated answers
            line = self.lines.line(delta)
            if line is not None:
                self.lines.note(delta)
                return line
        self._left -= sum(chunk.is_last for chunk in chunks)
        self.is_over = self._left <= 0
        responses = self._reply.responses(chunks, is_last=self.is_over)
        return b"".join(_bytes(each.get("response", b"")) for each in responses)

    def failure(self, error: LmiError) -> Ending:
        """Return what the reply's format writes; nothing where it cannot."""
        data = self._reply.in_the_middle(error).encode()
        return Ending(data, is_end=bool(data))

    def taken(self) -> Delta | None:
        return self.lines.answers.taken() if self.lines is not None else None

    def restore(self, state: Delta, num_events: int) -> None:
        if self.lines is not None:
            self.lines.answers.restore(state)
            self.lines.num_objects = num_events


def streamed(work: tuple[GenerateRequest, ...], reply: Reply) -> tuple[GenerateRequest, ...]:
    """Return the requests of a body; as streams, if its format shows each token by itself."""
    body = reply.body if isinstance(reply, LmiAnswer) and reply.is_body else None
    if body is None or not body.is_by_token:
        return work
    return tuple(replace(request, stream=True) for request in work)


def form_of(work: tuple[GenerateRequest, ...] | HttpRequest, reply: Reply) -> Form:
    if isinstance(work, HttpRequest) and work.path == INVOCATIONS:
        return HandlerForm()
    if isinstance(reply, BodyReply):
        form = LegacyChatForm() if isinstance(reply, LegacyChatReply) else HttpForm()
        return LinesForm(form) if reply.has_lines else form
    if not (isinstance(reply, LmiAnswer) and reply.is_body):
        return HttpForm()
    return LmiForm(reply, answers_of(work))


def _merged(chunks: list[Chunk]) -> list[Chunk]:
    merged: dict[int, Chunk] = {}
    for chunk in chunks:
        if (earlier := merged.get(chunk.index)) is None:
            merged[chunk.index] = chunk
        else:
            earlier.merge(chunk)  # type: ignore[arg-type]  # a request has one kind of chunks
    return list(merged.values())


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


_MODEL: Final = "/models/{model}"
_ADAPTERS: Final = f"{_MODEL}/adapters"
_ADAPTER: Final = f"{_ADAPTERS}/{{adapter}}"


def _body(template: str, *, by_tensor: bool = False) -> Path:
    return Path(
        template, INVOKE, takes_place=True, counts_n=True, can_resume=True, by_tensor=by_tensor
    )


SPEC: Final = ClientSpec(
    name="lmi",
    title="LMI",
    failure=lmi_failure,
    form=HttpForm,
    paths=(
        _body(INVOCATIONS, by_tensor=True),
        _body("/predictions/{model}"),
        _body(f"{_MODEL}/invoke"),
        Path(_ADAPTERS, "adapters", "GET"),
        Path(_ADAPTERS, "adapters", "POST", OPERATOR),
        Path(_ADAPTER, "adapters", "GET"),
        Path(_ADAPTER, "adapters", "PUT DELETE", OPERATOR),
        Path("/adapters", "adapters", "GET"),
        Path("/adapters", "adapters", "POST", OPERATOR),
        Path("/adapters/{adapter}", "adapters", "DELETE", OPERATOR),
        Path("/models", "list registered", "GET", OPERATOR),
        Path("/models", "register", "POST", OPERATOR),
        Path(_MODEL, "describe", "GET", OPERATOR),
        Path(_MODEL, "unregister", "DELETE", OPERATOR),
        Path("/ping", "ping", "GET POST", PROBE),
        Path("/health", "ping", "GET", PROBE),
        Path("/live", "live", "GET", PROBE),
    ),
)
