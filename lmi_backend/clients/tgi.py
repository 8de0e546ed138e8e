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

from lmi_backend.clients.lmi import LmiForm, LmiReply, read_lmi
from lmi_backend.clients.lmi_formats import Lines, WholeJson, dump
from lmi_backend.clients.openai import HttpForm, WholeForm
from lmi_backend.clients.parameters import FIELDS, read_parameters
from lmi_backend.clients.spec import (
    EVENTS,
    READ,
    ClientSpec,
    Ending,
    ErrorResponse,
    Path,
    Read,
    failure,
    generating,
    message_of,
    status_of,
)
from lmi_backend.clients.unserved import UNSERVED, plain_name
from lmi_backend.clients.values import BOOLEAN, OBJECT, read_value
from lmi_backend.engine_config import ClientSettings
from lmi_backend.errors import HttpError, LmiError, RequestError
from lmi_backend.generation import HttpRequest
from lmi_backend.json_text import UNREADABLE
from lmi_backend.tokenization import SPANS_PATH, Spanning, Spans

if TYPE_CHECKING:
    from lmi_backend.engine_config import Context


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


class _Events(Lines):
    content_type = EVENTS
    _frame = "data:", "\n\n"


class TgiForm(LmiForm):
    """One object, or an event a token."""

    def failure(self, error: LmiError) -> Ending:
        return Ending(f"data:{dump(json.loads(tgi_failure(error).data))}\n\n".encode(), is_end=True)


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
    details = reply.requested.details or (reply.requested.decoder_input_details and not stream)
    requested = replace(reply.requested, dialect="tgi", details=details, is_list=is_list)
    reply.body = _Events(requested) if stream else WholeJson(requested)
    return Read(parsed.work, TgiForm(reply, requested.answers), dropped=parsed.dropped)


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
    return Read(request, WholeForm(partial(_spans, is_chat=spanning.chat is not None)))


def _spans(data: bytes, *, is_chat: bool) -> bytes:
    try:
        spans = msgspec.json.decode(data, type=Spans)
    except UNREADABLE:
        raise HttpError(HTTPStatus.NOT_FOUND, "the model's engine has no tokenizer") from None
    tokens = msgspec.to_builtins(spans.tokens)
    whole = {"tokenize_response": tokens, "templated_text": spans.text}
    return dump(whole if is_chat else tokens).encode()


SPEC: Final = ClientSpec(
    name="tgi",
    title="Text Generation Inference",
    failure=tgi_failure,
    form=HttpForm,
    paths=(
        generating("/generate", READ, read=read_whole),
        generating("/generate_stream", READ, read=read_stream),
        generating("/", READ, read=read_either),
        # vLLM's clients send `prompt` or `messages` to the same path.
        Path("/tokenize", READ, read=read_text, member="inputs"),
        Path("/chat_tokenize", READ, read=read_chat),
        Path("/info", "info", "GET"),
    ),
)
