"""What clients of Text Generation Inference are, with their bodies, answers and errors.

Names and shapes of tokens: `/tokenize` and `/chat_tokenize` of its OpenAPI document.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmi_backend.clients.lmi_formats import (
    Answers,
    dump,
    token_object,
    token_texts,
)
from lmi_backend.clients.lmi_reading import LmiReply, read_lmi
from lmi_backend.clients.openai import HttpForm
from lmi_backend.clients.parameters import FIELDS, read_parameters
from lmi_backend.clients.spec import (
    EVENTS,
    JSON,
    READ,
    ClientSpec,
    Ending,
    ErrorResponse,
    Path,
    Read,
    failure,
    message_of,
    status_of,
)
from lmi_backend.clients.unserved import UNSERVED, plain_name
from lmi_backend.clients.values import BOOLEAN, OBJECT, read_value
from lmi_backend.engine_config import ClientSettings
from lmi_backend.errors import HTTP_ERROR, HttpError, LmiError, RequestError
from lmi_backend.generation import Delta, HttpChunk, HttpRequest
from lmi_backend.outline import UNREADABLE
from lmi_backend.tokenization import SPANS_PATH, Spanning, Spans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lmi_backend.clients.lmi_formats import RequestedAnswer
    from lmi_backend.engine_config import Context
    from lmi_backend.generation import Chunk


# It has no type for a wrong key, which is no fault of the body: its clients raise what is unknown.
_TYPES: Final = {
    401: "authentication", 403: "authentication", 429: "overloaded", 503: "overloaded",
}  # fmt: skip


def tgi_failure(error: LmiError) -> ErrorResponse:
    status = status_of(error)
    is_ours = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    kind = _TYPES.get(status, "generation" if is_ours else "validation")
    # Its clients know 422 for a wrong body.
    code = HTTPStatus.UNPROCESSABLE_ENTITY if status == HTTPStatus.BAD_REQUEST else status
    return failure(code, {"error": message_of(error), "error_type": kind}, error)


_Json = dict[str, Any]
_NO_TOKEN: Final[_Json] = {"id": 0, "logprob": 0.0, "special": False}
"""For text that came without one; its clients want a number."""


class TgiForm:
    """One object, in a list or not (`is_list`), or an event a token."""

    is_failed = False

    def __init__(self, requested: RequestedAnswer, *, is_list: bool) -> None:
        self.status, self.is_over = 200, False
        self.headers: Mapping[str, str] = {"content-type": EVENTS if requested.stream else JSON}
        has_prompt = requested.decoder_input_details and not requested.stream
        details = requested.details or has_prompt
        self._requested = replace(requested, dialect="tgi", details=details)
        self._answers, self._is_list = Answers(self._requested), is_list
        self._events = 0

    def write(self, chunks: list[Chunk]) -> bytes:
        events = ""
        for chunk in chunks:
            if isinstance(chunk, Delta):
                texts = token_texts(chunk)
                self._answers[chunk.index].add(chunk, texts)
                if self._requested.stream:
                    events += "".join(map(_event, self._tokens(chunk, texts)))
        self.is_over = self._answers.are_complete
        if self._requested.stream or not self.is_over:
            return events.encode()
        (whole,) = self._answers.whole()
        return dump([whole] if self._is_list else whole).encode()

    def taken(self) -> Delta | None:
        return self._answers.taken()

    def restore(self, state: Delta, num_events: int) -> None:
        self._answers.restore(state)
        self._events = num_events

    def failure(self, error: LmiError) -> Ending:
        return Ending(_event(json.loads(tgi_failure(error).data)).encode(), is_end=True)

    def _tokens(self, delta: Delta, texts: Sequence[str]) -> Iterator[_Json]:
        requested, answers = self._requested, self._answers
        pairs = list(zip(delta.tokens, texts, strict=False))
        tokens = [token_object(*pair, requested) for pair in pairs]
        tops = [token.top for token, _ in pairs]
        if not tokens and (delta.text or delta.is_last):
            tokens, tops = [{**_NO_TOKEN, "text": delta.text}], [()]
        for place, (token, top) in enumerate(zip(tokens, tops, strict=True), start=1):
            self._events += 1
            item: _Json = {"index": self._events, "token": token}
            if requested.top_n_tokens:
                item["top_tokens"] = [token_object(other, other.text, requested) for other in top]
            item |= {"generated_text": None, "details": None}
            if delta.is_last and place == len(tokens):
                item["generated_text"] = answers.text(delta.index)
                if requested.details:
                    item["details"] = answers.details(delta.index, with_tokens=False)
            yield item


def _event(item: _Json) -> str:
    return f"data:{dump(item)}\n\n"


_DEFAULTS: Final[dict[str, Any]] = {"max_new_tokens": 100, "include_stop_str_in_output": True}
"""Of its server: the text of an answer includes the stop sequence."""
_AT_TOP: Final = frozenset({"inputs", "stream", "model"})
"""Members that stand outside of `parameters`."""
_OF_OTHER_BODIES: Final = ("messages", "prompt", "tools", "tool_choice", "response_format")
"""Members of other bodies: this one has a prompt of its own, and calls no tools."""
_SETTINGS: Final = ClientSettings(dialect="legacy")
_SAMPLING: Final = frozenset({"temperature", "top_k", "top_p", "typical_p"})


def read_either(body: dict[str, Any], context: Context) -> Read:
    """Read a body whose `stream` chooses events, or a list of one object."""
    value = body.get("stream")
    stream = value is not None and bool(read_value(BOOLEAN, "stream", value))
    return _read(body, context, stream=stream, is_list=True)


def _read(body: dict[str, Any], context: Context, *, stream: bool, is_list: bool = False) -> Read:
    if not isinstance(body.get("inputs"), str):
        raise RequestError("is missing, or is not a string", field="inputs")
    given = body.get("parameters") or {}
    if not isinstance(given, dict):
        raise RequestError("is not an object", field="parameters", value=given)
    named = {n: v for n, v in given.items() if v is not None} | {"stream": stream}
    targets = {FIELDS[name].target for name in named if name in FIELDS}
    named |= {n: v for n, v in _DEFAULTS.items() if FIELDS[n].target not in targets}
    if stream and named.get("best_of", 1) != 1:
        raise RequestError("is not for streams", field="best_of", value=named["best_of"])
    # Its server samples where one of these is given, whatever `do_sample` says.
    if not _SAMPLING.isdisjoint(named):
        named["do_sample"] = True
    # LMI passes over what it does not serve; some of that this client's own server serves.
    read_parameters(named, dropped=[], refuses_unserved=True)
    _refuse_others(given)
    _refuse_misplaced(body)
    parsed = read_lmi(body["inputs"], named, replace(context, clients=_SETTINGS), is_body=True)
    reply = parsed.reply
    if not isinstance(parsed.work, tuple) or not isinstance(reply, LmiReply):
        raise RequestError("is not a text", field="inputs")
    return Read(parsed.work, TgiForm(reply.requested, is_list=is_list), dropped=parsed.dropped)


read_whole: Final = partial(_read, stream=False)
read_stream: Final = partial(_read, stream=True)


def _refuse_others(given: dict[str, Any]) -> None:
    """Refuse other servers' parameters that constrain, select or limit an answer."""
    for name in given.keys() & UNSERVED.keys() - FIELDS.keys():
        value, nothing = given[name], UNSERVED[name]
        if value and value not in nothing:
            accepted = " or ".join([*map(json.dumps, nothing), "nothing"])
            raise RequestError("is not served", field=name, value=value, accepted=accepted)
    for name in given.keys() - FIELDS.keys():
        if given[name] is not None and (plain := plain_name(name)) != name and plain in FIELDS:
            raise RequestError("is another spelling", field=name, accepted=plain)


def _refuse_misplaced(body: dict[str, Any]) -> None:
    """Refuse a parameter outside of `parameters`, where nobody reads it."""
    for name in body.keys() & {*FIELDS, *_OF_OTHER_BODIES} - _AT_TOP:
        if body[name]:
            accepted = f"parameters.{name}" if name in FIELDS else "/v1/chat/completions"
            raise RequestError("has no effect in this place", field=name, accepted=accepted)


def read_text(body: dict[str, Any], context: Context) -> Read:
    if not isinstance(text := body.get("inputs"), str):
        raise RequestError("is missing, or is not a string", field="inputs")
    name = "add_special_tokens"
    given = body.get(name)
    special = True if given is None else read_value(BOOLEAN, name, given)
    return _read_spans(Spanning(text, special), context)


def read_chat(body: dict[str, Any], context: Context) -> Read:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError("is not a list of messages", field="messages", value=messages)
    return _read_spans(Spanning(chat=read_value(OBJECT, "the body", body)), context)


def _read_spans(spanning: Spanning, context: Context) -> Read:
    if context.is_custom:
        raise RequestError("is read by a handler of the user's own", field="the body")
    request = HttpRequest(SPANS_PATH, msgspec.json.encode(spanning))
    return Read(request, SpansForm(is_chat=spanning.chat is not None))


class SpansForm:
    is_failed = False

    def __init__(self, *, is_chat: bool) -> None:
        self.status, self.is_over = 200, False
        self.headers: Mapping[str, str] = {"content-type": JSON}
        self._is_chat = is_chat
        self._buffered = b""

    def write(self, chunks: list[Chunk]) -> bytes:
        for chunk in chunks:
            if not isinstance(chunk, HttpChunk):
                continue
            self._buffered += chunk.data
            self.is_over = self.is_over or chunk.is_last
            if chunk.status >= HTTP_ERROR:
                raise HttpError(chunk.status, chunk.data.decode("utf-8", "replace"))
        if not self.is_over:
            return b""
        try:
            spans = msgspec.json.decode(self._buffered, type=Spans)
        except UNREADABLE:
            text = "the model's engine has no tokenizer"
            raise HttpError(HTTPStatus.NOT_FOUND, text) from None
        tokens = msgspec.to_builtins(spans.tokens)
        whole = {"tokenize_response": tokens, "templated_text": spans.text}
        return dump(whole if self._is_chat else tokens).encode()

    def failure(self, error: LmiError) -> Ending:
        return Ending()


def _body(template: str, read: Callable[[dict[str, Any], Context], Read]) -> Path:
    return Path(template, READ, takes_place=True, counts_n=True, can_resume=True, read=read)


SPEC: Final = ClientSpec(
    name="tgi",
    title="Text Generation Inference",
    failure=tgi_failure,
    form=HttpForm,
    paths=(
        _body("/generate", read_whole),
        _body("/generate_stream", read_stream),
        _body("/", read_either),
        # vLLM's clients send `prompt` or `messages` to the same path.
        Path("/tokenize", READ, read=read_text, member="inputs"),
        Path("/chat_tokenize", READ, read=read_chat),
        Path("/info", "info", "GET"),
    ),
)
