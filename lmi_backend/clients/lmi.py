"""LMI's clients: their bodies in both of its dialects, or as tensors, with answers and errors.

The engine's own embeddings endpoint answers requests for vectors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from lmi_backend.clients.lmi_formats import (
    Format,
    Json,
    Lines,
    RequestedAnswer,
    WholeJson,
    dump,
    legacy_word,
    make_format,
)
from lmi_backend.clients.openai import EMBEDDINGS, HttpForm, LinesForm
from lmi_backend.clients.parameters import Requested, answers_wanted, make_sampling, read_parameters
from lmi_backend.clients.spec import (
    INVOKE,
    JSON,
    LINES,
    OPERATOR,
    PROBE,
    ClientSpec,
    Ending,
    ErrorResponse,
    Output,
    ParsedRequest,
    Path,
    Response,
    answers_of,
    failure,
    generating,
    is_object,
    rename_prompt,
)
from lmi_backend.clients.values import Prompt, prompt_text, read_prompts
from lmi_backend.engine_config import Context
from lmi_backend.errors import (
    HTTP_ERROR,
    HTTP_SERVER_ERROR,
    EngineError,
    HttpError,
    LmiError,
    RequestError,
    lmi_status,
)
from lmi_backend.generation import Chunk, Delta, GenerateRequest, HttpChunk, HttpRequest

if TYPE_CHECKING:
    from lmi_backend.clients.spec import Form, Reply

INVOCATIONS: Final = "/invocations"
_MANAGEMENT: Final = {
    400: "BadRequestException", 404: "AdapterNotFoundException", 409: "ConflictException",
}  # fmt: skip


def as_lmi(error: LmiError) -> HttpError:
    status = lmi_status(error)
    return HttpError(status, _text(status, str(error)))


def as_management(error: LmiError) -> LmiError:
    if not isinstance(error, HttpError):
        return error
    kind = _MANAGEMENT.get(error.status, "ModelException")
    body = {"code": error.status, "type": kind, "message": str(error)}
    return HttpError(error.status, json.dumps(body, ensure_ascii=False))


def lmi_failure(error: LmiError) -> ErrorResponse:
    if isinstance(error, HttpError) and not is_object(str(error)):
        return failure(error.status, _text(error.status, str(error)), error)
    answer = error if isinstance(error, HttpError) else as_lmi(error)
    return failure(answer.status, str(answer), error)


def _text(status: int, message: str) -> str:
    return json.dumps({"code": status, "error": message}, ensure_ascii=False)


_EVENT: Final = b"data: "
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
    """OpenAI's answer, except for its finish reason: eos_token, or stop_sequence."""

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
        parts = data.split(_EVENT_END) if self.has_events else [data]
        return _EVENT_END.join(map(_with_lmis_ends, parts))


def _with_lmis_ends(text: bytes) -> bytes:
    """Return an event, or a body, with the finish reasons of LMI's older handlers."""
    data = text.removeprefix(_EVENT)
    if not data.startswith(b"{"):
        return text
    body = json.loads(data)
    for choice in body.get("choices", ()):
        if choice.get("finish_reason") == "stop":
            is_string = choice.get("stop_reason") is not None
            choice["finish_reason"] = "stop_sequence" if is_string else "eos_token"
    return text[: -len(data)] + dump(body).encode()


@dataclass
class BodyReply:
    """Bytes as they come; an HTTP error becomes an error whose text is the body."""

    form: HttpForm = field(default_factory=HttpForm)
    """Makes the bytes."""
    outputs: frozenset[str] = frozenset()
    has_lines: bool = False
    """Whether an HTTP client gets a stream as JSON lines; tensors have events."""
    _refusal: bytes = b""

    def responses(self, chunks: Sequence[Chunk], *, is_last: bool) -> list[Response]:
        is_first = not self.form.status
        data = self.form.write([*chunks])
        if self.form.status >= HTTP_ERROR:
            self._refusal += data
            if not is_last:
                return []
            raise HttpError(self.form.status, self._refusal.decode("utf-8", "replace"))
        response: Response = {"response": data}
        if is_first and "headers" in self.outputs:
            response["headers"] = json.dumps({"status": self.form.status} | dict(self.form.headers))
        return [response] if data or is_last or is_first else []

    def failure(self, error: LmiError) -> LmiError:
        return error if isinstance(error, HttpError) else as_lmi(error)


@dataclass(kw_only=True)
class LmiAnswer:
    """The reply to an LMI request: tensors, or LMI's own body, whose errors are bodies too."""

    outputs: frozenset[str] = frozenset()
    is_body: bool = False
    body: Format | None = None
    """Writes the body of a generated answer."""
    field: str = "inputs"
    """The client's name of the prompt."""
    _has_written: bool = False

    @property
    def content_type(self) -> str:
        return self.body.content_type if self.body is not None else JSON

    def responses(self, chunks: Sequence[Chunk], *, is_last: bool) -> list[Response]:
        responses = self._responses(chunks, is_last=is_last)
        if self.is_body and responses and not self._has_written and "headers" in self.outputs:
            head = {"status": 200, "content-type": self.content_type}
            responses[0] |= {"headers": json.dumps(head)}
        self._has_written |= bool(responses)
        return responses

    def _responses(self, chunks: Sequence[Chunk], *, is_last: bool) -> list[Response]:
        raise NotImplementedError

    def failure(self, error: LmiError) -> LmiError:
        renamed = rename_prompt(error, self.field)
        return as_lmi(renamed) if self.is_body else renamed


MAX_TOKENS: Final = 30
"""Default of LMI's `max_new_tokens`."""
# Each is held until all are there.
_MOST_ANSWERS: Final = 16_384


def read_lmi(
    inputs: object, named: Mapping[str, object], context: Context, *, is_body: bool
) -> ParsedRequest:
    """Read an LMI request.

    Args:
        inputs: a string, a list of strings, token ids, or a list of lists of them.
        named: all other fields, those inside and outside of `parameters`.
        is_body: the answer is wanted as LMI's own body.

    Raises:
        RequestError: naming the field that is wrong.
    """
    prompts, is_list = read_prompts("inputs", inputs)
    dropped: list[str] = []
    requested = read_parameters(named, dropped=dropped)
    wanted = _wanted(requested, prompts, context, is_list=is_list)
    if wanted.answers > _MOST_ANSWERS:
        problem = f"request {wanted.answers} answers"
        raise RequestError(problem, field="inputs and n", accepted=f"at most {_MOST_ANSWERS}")
    name = requested.get("output_formatter", context.clients.output_formatter)
    body = make_format(name, wanted) if is_body or name else None
    logprobs = _logprobs(requested, wanted, body)
    sampling = make_sampling(_defaults(requested, context))
    adapters = _adapters(requested, len(prompts), context)
    of_prompt = 0 if wanted.decoder_input_details else None
    requests = tuple(
        GenerateRequest(
            prompt=prompt,
            sampling=sampling,
            stream=wanted.stream,
            adapter=adapter,
            priority=requested.get("priority", 0),
            n=wanted.n,
            logprobs=logprobs,
            prompt_logprobs=requested.get("prompt_logprobs", of_prompt),
        )
        for prompt, adapter in zip(prompts, adapters, strict=True)
    )
    reply = LmiReply(requested=wanted, body=body, is_body=is_body)
    return ParsedRequest(requests, reply, tuple(dropped), requested.get("tenant", ""))


def _wanted(
    requested: Requested, prompts: list[Prompt], context: Context, *, is_list: bool
) -> RequestedAnswer:
    return RequestedAnswer(
        prompts=tuple(map(prompt_text, prompts)),
        is_list=is_list,
        n=answers_wanted(requested),
        stream=requested.get("stream", False),
        details=requested.get("details", context.clients.tgi_compat),
        return_full_text=requested.get("return_full_text", False),
        decoder_input_details=requested.get("decoder_input_details", False),
        top_n_tokens=requested.get("top_n_tokens", 0),
        seed=requested.get("seed"),
        tgi_compat=context.clients.tgi_compat,
        dialect=context.clients.dialect,
    )


def _defaults(requested: Requested, context: Context) -> Requested:
    """Apply LMI's defaults and its `do_sample`.

    The legacy handlers answer greedily unless told to sample; the async ones leave it to the
    engine unless `do_sample` is false (djl-serving's handlers at d21927c). Several answers to a
    prompt are wanted to differ, so they are sampled unless the request says otherwise.
    """
    do_sample = requested.get("do_sample")
    is_greedy = do_sample is False or (
        do_sample is None
        and context.clients.dialect == "legacy"
        and "temperature" not in requested
        and answers_wanted(requested) == 1
    )
    greedy = {"temperature": 0.0} if is_greedy else {}
    return {"max_tokens": MAX_TOKENS} | requested | greedy


def _logprobs(requested: Requested, wanted: RequestedAnswer, body: Format | None) -> int | None:
    """Request tokens from the engine only if the answer shows them: they cost time."""
    is_by_token = body is not None and (wanted.stream or body.is_by_token)
    is_wanted = wanted.details or wanted.n > 1 or is_by_token
    count = max(requested.get("logprobs") or 0, wanted.top_n_tokens)
    return count if is_wanted or count else None


def _adapters(requested: Requested, prompts: int, context: Context) -> tuple[str, ...]:
    """Return an adapter for each prompt; empty is the base model."""
    names: tuple[str, ...] = requested.get("adapter", ())
    if context.adapter:
        if names and set(names) != {context.adapter}:
            problem = f"contradicts the model's name in the request, {context.adapter}"
            raise RequestError(problem, field="adapters", value=", ".join(names))
        names = (context.adapter,)
    if not names and requested.get("model") in context.adapters:
        names = (requested["model"],)
    if len(names) <= 1:
        return (names[0] if names else "",) * prompts
    if len(names) != prompts:
        problem = f"has {len(names)} names for {prompts} inputs"
        raise RequestError(problem, field="adapters", accepted="one name, or one for each input")
    return names


@dataclass(kw_only=True)
class LmiReply(LmiAnswer):
    """Answers an LMI request.

    As tensors: `text_output` is what is new, `generated_text` the whole answer with the last
    response, `details` LMI's object as JSON. As a body: `response` holds what LMI would write.
    """

    requested: RequestedAnswer
    _texts: dict[int, list[str]] = field(default_factory=dict)
    _done: list[Delta] = field(default_factory=list)
    _whole: WholeJson | None = None

    def __post_init__(self) -> None:
        if self.body is None and (self.requested.details or self.requested.n > 1):
            self._whole = WholeJson(self.requested)

    def _responses(self, chunks: Sequence[Chunk], *, is_last: bool) -> list[Response]:
        deltas = [chunk for chunk in chunks if isinstance(chunk, Delta)]
        if self.body is None and "response" in self.outputs:
            self.body = make_format("", self.requested)
        if self.body is not None:
            text = self.body.write(deltas)
            return [{"response": text}] if text or is_last else []
        if self.requested.stream:
            return [self._chunk(delta) for delta in deltas]
        return self._at_once(deltas, is_last=is_last)

    def _chunk(self, delta: Delta) -> Response:
        texts = self._texts.setdefault(delta.index, [])
        texts.append(delta.text)
        response: Response = {"text_output": delta.text}
        if len(self.requested.prompts) * self.requested.n > 1:
            response["index"] = delta.index
        objects = self._whole.objects([delta]) if self._whole is not None else []
        if delta.is_last:
            response["generated_text"] = self.requested.prefix(delta.index) + "".join(texts)
        return response | self._optional([delta], objects)

    def _at_once(self, deltas: list[Delta], *, is_last: bool) -> list[Response]:
        """All answers in one response: the first to each prompt, the others in its details."""
        objects = self._whole.objects(deltas) if self._whole is not None else []
        self._done += deltas
        if not is_last:
            return []
        first = [each for each in self._done if each.index % self.requested.n == 0]
        first.sort(key=lambda each: each.index)
        texts = [self.requested.prefix(delta.index) + delta.text for delta in first]
        response: Response = {"generated_text": texts}
        if "text_output" in self.outputs:
            response["text_output"] = texts
        return [response | self._optional(first, objects)]

    def _optional(self, deltas: list[Delta], objects: list[Json]) -> Response:
        """Return the outputs that a client names, or all of them with `details`."""
        optional: dict[str, Output] = {
            "finish_reason": [legacy_word(delta) or "" for delta in deltas],
            "num_input_tokens": [delta.num_prompt_tokens for delta in deltas],
            "num_output_tokens": [delta.num_tokens for delta in deltas],
        }
        wanted = optional if self.requested.details else {}
        chosen = {n: v for n, v in optional.items() if n in wanted or n in self.outputs}
        if objects:
            chosen["details"] = [dump(each.get("details")) for each in objects]
        return chosen


def read_lmi_embedding(inputs: object, context: Context, *, is_body: bool) -> ParsedRequest:
    """Read the body of an embedding model; the answer is a list. Raises RequestError: no texts."""
    prompts, _ = read_prompts("inputs", inputs)
    requested: dict[str, object] = {"input": prompts}
    if not context.clients.normalize:
        requested["use_activation"] = False
    if context.adapter:
        requested["model"] = context.adapter
    call = HttpRequest(EMBEDDINGS, json.dumps(requested).encode())
    output = "response" if is_body else "generated_text"
    return ParsedRequest(call, EmbeddingReply(output=output, is_body=is_body))


@dataclass(kw_only=True)
class EmbeddingReply(LmiAnswer):
    output: str
    _form: HttpForm = field(default_factory=HttpForm)
    _data: bytes = b""

    def _responses(self, chunks: Sequence[Chunk], *, is_last: bool) -> list[Response]:
        self._data += self._form.write([*chunks])
        if not is_last:
            return []
        answer = json.loads(self._data or b"{}")
        if "data" not in answer:
            raise self._error(answer)
        vectors = [item["embedding"] for item in answer["data"]]
        is_one = self.output == "text_output"
        response: Response = {self.output: json.dumps(vectors[0] if is_one else vectors)}
        counts = {
            "num_input_tokens": answer.get("usage", {}).get("prompt_tokens", 0),
            "num_output_tokens": 0,
        }
        return [response | {name: n for name, n in counts.items() if name in self.outputs}]

    def _error(self, answer: Any) -> LmiError:
        error = answer.get("error", answer)
        message = str(error.get("message", error) if isinstance(error, dict) else error)
        if self._form.status < HTTP_SERVER_ERROR:
            return RequestError(f"is refused: {message}", field=self.field)
        return EngineError(message)


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
        return "".join(str(each["response"]) for each in responses).encode()

    def failure(self, error: LmiError) -> Ending:
        """Return what the reply's format writes; nothing where it cannot."""
        body, renamed = self._reply.body, rename_prompt(error, self._reply.field)
        data = b"" if body is None else body.fail(renamed).encode()
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
        return LinesForm(reply.form) if reply.has_lines else reply.form
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


_MODEL: Final = "/models/{model}"
_ADAPTERS: Final = f"{_MODEL}/adapters"
_ADAPTER: Final = f"{_ADAPTERS}/{{adapter}}"


SPEC: Final = ClientSpec(
    name="lmi",
    title="LMI",
    failure=lmi_failure,
    form=HttpForm,
    paths=(
        generating(INVOCATIONS, INVOKE, by_tensor=True),
        generating("/predictions/{model}", INVOKE),
        generating(f"{_MODEL}/invoke", INVOKE),
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
