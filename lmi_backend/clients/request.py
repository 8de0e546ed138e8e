"""Read a request of any client: as tensors, or as a whole HTTP body.

The tensor that holds the prompt tells the clients apart. `request` is a whole body, `inputs` is
LMI's. `text_input` is that of Triton's vLLM backend, or of its TensorRT-LLM backend if a name
occurs that only the latter's clients use.

An HTTP gateway puts in the body that it got and writes out the answer that it gets: nothing is lost
between the two.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import msgspec

from lmi_backend.clients.lmi import (
    INVOCATIONS,
    BodyReply,
    LegacyChatForm,
    as_lmi,
    read_lmi,
    read_lmi_embedding,
)
from lmi_backend.clients.openai import CHATS, COMPLETIONS, EMBEDDINGS, HttpForm
from lmi_backend.clients.parameters import FIELDS, TRTLLM_ONLY, read_json, scalars
from lmi_backend.clients.registry import COUNTED, PATHS, RESUMED, path_at
from lmi_backend.clients.sagemaker import check_extras
from lmi_backend.clients.spec import AdapterChange, Cancel, ParsedRequest
from lmi_backend.clients.trtllm import (
    TrtllmReply,
    read_postprocessing,
    read_preprocessing,
    read_trtllm,
)
from lmi_backend.clients.values import MAX_WEIGHT, OBJECT, STRING, read_value
from lmi_backend.clients.vllm import RETURNS, read_embedding, read_vllm
from lmi_backend.engine_config import Context
from lmi_backend.errors import RequestError
from lmi_backend.generation import GenerateRequest, HttpRequest
from lmi_backend.json_text import UNREADABLE, TooManyValuesError, check_values
from lmi_backend.names import NAME_BYTES, PATH_BYTES, check_headers, check_name
from lmi_backend.printable import printable

PARENT: Final = "traceparent"
"""Without this header the other one counts for nothing."""
HEADERS: Final = (PARENT, "tracestate")
# https://www.w3.org/TR/trace-context/#traceparent-header
_PARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
# The standard wants 512 characters of tracestate kept.
_LONGEST: Final = 2048


def take_trace(parameters: dict[str, object]) -> dict[str, str]:
    """Take the headers of a trace out of a request's parameters.

    A broken one is dropped, as the standard wants: tracing must not fail a request.
    """
    # Triton passes headers on as they were spelt.
    spelt = [name for name in parameters if name.lower() in HEADERS]
    given = {name.lower(): parameters.pop(name) for name in spelt}
    parent = given.get(PARENT)
    if not isinstance(parent, str) or not _may_travel(parent) or not _PARENT.fullmatch(parent):
        return {}
    return {n: text for n, text in given.items() if isinstance(text, str) and _may_travel(text)}


def _may_travel(text: str) -> bool:
    return len(text) <= _LONGEST and text.isprintable()


def with_trace(
    work: tuple[GenerateRequest, ...] | HttpRequest, trace: dict[str, str]
) -> tuple[GenerateRequest, ...] | HttpRequest:
    if not trace:
        return work
    if isinstance(work, HttpRequest):
        return msgspec.structs.replace(work, headers=work.headers | trace)
    return tuple(msgspec.structs.replace(each, trace_headers=trace) for each in work)


_LARGE: Final = 1 << 18
"""Bytes of a list from which its items are not all made."""
_NULL: Final = msgspec.Raw(b"null")
_NONE: Final = msgspec.Raw(b"")


class Wanted(NamedTuple):
    width: int = 1
    """Answers: `n` to each of its prompts."""
    session: str = ""
    """Name that its client gives; the requests of one have much in common."""
    prompt: Iterator[bytes | msgspec.Raw] = iter(())
    """Pieces of JSON, in the order in which templates write them."""
    user: str = ""
    """Its client's user."""


class _Body(msgspec.Struct):
    n: int | None = None
    prompt: msgspec.Raw = _NULL
    prompt_embeds: msgspec.Raw = _NULL
    prompt_cache_key: msgspec.Raw = _NULL
    safety_identifier: msgspec.Raw = _NULL
    user: msgspec.Raw = _NULL
    messages: msgspec.Raw = _NONE
    input: msgspec.Raw = _NONE
    model: msgspec.Raw = _NONE
    cache_salt: msgspec.Raw = _NONE
    chat_template: msgspec.Raw = _NONE
    chat_template_kwargs: msgspec.Raw = _NONE
    reasoning_effort: msgspec.Raw = _NONE
    tools: msgspec.Raw = _NONE
    documents: msgspec.Raw = _NONE
    system: msgspec.Raw = _NONE
    instructions: msgspec.Raw = _NONE

    def pieces(self) -> Iterator[bytes | msgspec.Raw]:
        """Yield what prompts begin with, or differ by, and then the messages."""
        yield b"".join(
            (
                self.model, self.cache_salt, self.chat_template, self.chat_template_kwargs,
                self.reasoning_effort, self.tools, self.documents, self.system, self.instructions,
            )
        )  # fmt: skip
        items = next((each for each in (self.messages, self.input) if each != _NONE), self.prompt)
        view = memoryview(items)
        if items is not self.prompt and len(view) <= _LARGE and view[0] == ord("["):
            yield from _LIST.decode(items)
        else:
            yield items


class _Named(msgspec.Struct):
    model: str | None = None


_NAME: Final = msgspec.json.Decoder(_Named)
_BODY: Final = msgspec.json.Decoder(_Body, strict=False)
MANY: Final = 4096
"""Prompts of one large body that are counted."""
_LISTED: Final = re.compile(rb"""\s*\[\s*["[]""")
_IS_NULL: Final = re.compile(rb"\s*null\s*").fullmatch
_ITEMS: Final = [(f"item{number}", msgspec.Raw, msgspec.Raw()) for number in range(MANY + 1)]
_FIRST: Final = msgspec.json.Decoder(msgspec.defstruct("_First", _ITEMS, array_like=True))
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])


def wanted(request: HttpRequest, *, reads_all: bool = False) -> Wanted:
    """Return what a body wants.

    A body that cannot be read counts as one answer: the engine refuses it. So does a body of more
    than `MANY` prompts, for prompts beyond that number are not counted.

    Args:
        reads_all: whether more is returned than the width.

    Raises:
        RequestError: it is not JSON by RFC 8259, and has too many values for slower readers.
    """
    counts = request.path in COUNTED
    if not counts and not (reads_all and request.path in RESUMED):
        return Wanted()
    try:
        body = _body_of(request.body)
        prompts = _prompts(body.prompt) + _prompts(body.prompt_embeds) if counts else 0
    except RequestError:
        if counts:
            raise
        return Wanted()
    except (*UNREADABLE, ValueError, TypeError, AttributeError, OverflowError):
        return Wanted()
    width = max(body.n or 1, 1) * max(prompts, 1) if counts else 1
    if not reads_all:
        return Wanted(width)
    user = _name_in(body.safety_identifier) or _name_in(body.user)
    return Wanted(width, _name_in(body.prompt_cache_key), body.pieces(), user)


def _name_in(value: msgspec.Raw) -> str:
    """Return a name; empty for what is none, which the engine refuses."""
    name = msgspec.json.decode(value)
    return name if isinstance(name, str) else ""


def model_named(request: HttpRequest) -> str | None:
    """Return the model that a body names; None if it cannot be read."""
    try:
        return _NAME.decode(request.body).model or ""
    except (*UNREADABLE, ValueError):
        return None


def _body_of(body: bytes) -> _Body:
    try:
        return _BODY.decode(body)
    except UNREADABLE:
        try:
            check_values(body)
        except TooManyValuesError as error:
            raise RequestError(str(error), field="the body") from None
        # Engines read NaN, and numbers beyond 64 bits.
        read: Any = json.loads(body)
        prompt, embeds = (_raw(read.get(name)) for name in ("prompt", "prompt_embeds"))
        return _Body(int(read.get("n") or 1), prompt, embeds)


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


def _prompts(raw: msgspec.Raw) -> int:
    """Return how many prompts a value holds; a list of numbers is one."""
    # A view: a prompt may have many megabytes.
    text = memoryview(raw)
    if _LISTED.match(text) is None:
        return int(_IS_NULL(text) is None)
    if len(text) <= _LARGE:
        return len(_LIST.decode(text))
    # Of an item beyond these nothing is made: there may be millions.
    return sum(len(memoryview(item)) > 0 for item in msgspec.structs.astuple(_FIRST.decode(text)))


_PATHS: Final = {"prompt": COMPLETIONS, "messages": CHATS, "input": EMBEDDINGS}
"""The field that tells an OpenAI body, and where it would have been sent."""
_OWN_PATHS: Final = ("", INVOCATIONS)
_TOP: Final = ("stream", "adapters", "model")
"""Fields of an LMI body other than `inputs` and `parameters`."""
_LMI_MEMBERS: Final = ("inputs", "parameters", *_TOP)
"""What else stands outside of `parameters` counts where it has no other name in them."""
ADAPTER: Final = "x-amzn-sagemaker-adapter-identifier"
"""The header by which SageMaker's clients choose a LoRA adapter."""
TENANT_HEADERS: Final = ("x-gateway-inference-fairness-id", "x-tenant-id")
"""The first one there counts; it is what Kubernetes' inference gateways call it."""
SESSION_HEADERS: Final = (
    "x-amzn-sagemaker-session-id", "x-amzn-sagemaker-prefix-aware-id", "x-session-id"
)  # fmt: skip
"""Headers that name what requests have in common; the first one there counts."""
_NUMBER: Final = re.compile("[0-9]{1,9}", re.ASCII).fullmatch
TTFT_HEADER: Final = "x-llm-d-slo-ttft-ms"
TPOT_HEADER: Final = "x-llm-d-slo-tpot-ms"
"""Milliseconds to the first token and between tokens, as llm-d's router calls them."""


def read_body(inputs: Mapping[str, list[Any]], context: Context) -> ParsedRequest:
    """Read the `request` tensor. Raises HttpError: the body is wrong; its text is LMI's answer."""
    text, path = str(inputs["request"][0]), str(inputs.get("path", [""])[0])
    try:
        headers = _headers(inputs)
        parsed = read_http_body(text, path, headers, context)
        return replace(parsed, session=session_of(headers), promise=promise_of(headers))
    except RequestError as error:
        raise as_lmi(error) from error


def read_http_body(
    text: str, path: str, headers: dict[str, str], context: Context
) -> ParsedRequest:
    """Read a body that came to a path; raises like `read_body`."""
    try:
        return of_tenant(_read_at(text, path, headers, context), headers, *TENANT_HEADERS)
    except RequestError as error:
        raise as_lmi(error) from error


def pass_on(data: bytes, headers: dict[str, str]) -> ParsedRequest:
    """Return a body for users' code, as it is."""
    parsed = ParsedRequest(HttpRequest(INVOCATIONS, data, headers), BodyReply())
    return of_tenant(parsed, headers, *TENANT_HEADERS)


def promise_of(headers: Mapping[str, str]) -> tuple[int, int]:
    """Return how soon a request's headers want its first token and its others; 0: any time.

    Raises:
        RequestError: a header is no number of milliseconds.
    """
    if TTFT_HEADER not in headers and TPOT_HEADER not in headers:
        return 0, 0
    return _milliseconds(headers, TTFT_HEADER), _milliseconds(headers, TPOT_HEADER)


def _milliseconds(headers: Mapping[str, str], name: str) -> int:
    text = headers.get(name, "0").strip()
    if _NUMBER(text) is None:
        problem = f"is {printable(text, 40)}"
        raise RequestError(problem, field=name, accepted="milliseconds, a whole number")
    return int(text)


def session_of(headers: Mapping[str, str]) -> str:
    if headers.keys().isdisjoint(SESSION_HEADERS):
        return ""
    return next(headers[name] for name in SESSION_HEADERS if name in headers)


def of_tenant(parsed: ParsedRequest, named: Mapping[str, object], *names: str) -> ParsedRequest:
    """Return a request with the tenant that one of some names says, if one does.

    Raises:
        RequestError: it is not a string.
    """
    for name in names:
        if named.get(name) is not None:
            return replace(parsed, tenant=read_value(STRING, name, named[name]))
    return parsed


def make_body(inputs: object, named: Mapping[str, object]) -> ParsedRequest:
    """Return tensors and parameters as the LMI body they stand for: the user's code reads it."""
    top = {name: value for name, value in named.items() if name in _TOP}
    parameters = {name: value for name, value in named.items() if name not in _TOP}
    body = {"inputs": inputs, "parameters": parameters} | top
    return ParsedRequest(HttpRequest(INVOCATIONS, json.dumps(body).encode()), BodyReply())


def _read_at(text: str, path: str, headers: dict[str, str], context: Context) -> ParsedRequest:
    if context.is_custom and path in _OWN_PATHS and not changes_adapters(text.encode()):
        return ParsedRequest(HttpRequest(INVOCATIONS, text.encode(), headers), BodyReply())
    if path not in _OWN_PATHS:
        served = path_at(path)
        if served is None or not served.by_tensor:
            served_paths = ", ".join(sorted({each.template for each in PATHS if each.by_tensor}))
            raise RequestError("is not served", field="path", value=path, accepted=served_paths)
        return ParsedRequest(HttpRequest(path, text.encode(), headers), BodyReply())
    body, data = read_json("request", text), text.encode()
    check_extras(headers, body)
    if "requestType" in body:
        return ParsedRequest(AdapterChange(read_value(OBJECT, "request", body)), BodyReply())
    # What LMI's handlers look for before `inputs`.
    first = "messages" if context.clients.dialect == "legacy" else "prompt"
    if first not in body and "inputs" in body:
        return _read_lmi_body(body, headers, context)
    for name, address in _PATHS.items():
        if name in body:
            is_legacy = (
                path == INVOCATIONS and context.clients.dialect == "legacy" and name == "messages"
            )
            if is_legacy:
                data = _older_chat(data, body)
            data = _of_adapter(data, body, headers, context)
            form = LegacyChatForm() if is_legacy else HttpForm()
            has_lines = path == INVOCATIONS and context.clients.openai_lines
            reply = BodyReply(form, has_lines=has_lines)
            return ParsedRequest(HttpRequest(address, data, headers), reply)
    accepted = "inputs (LMI), messages, prompt or input (OpenAI), or requestType"
    raise RequestError("holds no prompt", field="request", accepted=accepted)


def _older_chat(data: bytes, body: dict[str, Any]) -> bytes:
    """Return a chat body as LMI's older handlers read it.

    They ignore `top_logprobs` without `logprobs`, and refuse weights that vLLM cuts.

    Raises:
        RequestError: a weight is out of range.
    """
    weights = body.get("logit_bias")
    numbers = weights.values() if isinstance(weights, dict) else ()
    if any(isinstance(each, int | float) and not abs(each) <= MAX_WEIGHT for each in numbers):
        raise RequestError("value must be between -100 and 100.", field="logit_bias")
    if body.get("logprobs") or body.get("top_logprobs") is None:
        return data
    rest = {name: value for name, value in body.items() if name != "top_logprobs"}
    return json.dumps(rest).encode()


def _of_adapter(
    data: bytes, body: Mapping[str, Any], headers: Mapping[str, str], context: Context
) -> bytes:
    """Return an OpenAI body with the adapter that a header or a path names as its model."""
    adapter = _adapter(headers, context)
    if not adapter or body.get("model") == adapter:
        return data
    return json.dumps({**json.loads(data), "model": adapter}).encode()


def _adapter(headers: Mapping[str, str], context: Context) -> str:
    """Return the adapter that a header or a path names. Raises RequestError: they differ."""
    adapter = headers.get(ADAPTER, "")
    if adapter and context.adapter not in ("", adapter):
        problem = f"contradicts the model's name in the request, {context.adapter}"
        raise RequestError(problem, field=ADAPTER, value=adapter)
    return adapter or context.adapter


class _AdapterRequest(msgspec.Struct):
    requestType: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_ADAPTERS: Final = b"_ADAPTER"
"""In the type of each request that LMI has for adapters."""
_adapter_requests: Final = msgspec.json.Decoder(_AdapterRequest)


def changes_adapters(data: bytes) -> bool:
    """Return whether a body for users' code is one about adapters; it may be of any type."""
    try:
        kind = _adapter_requests.decode(data if _ADAPTERS in data else b"{}").requestType
    except UNREADABLE:
        return False
    return isinstance(kind, msgspec.Raw) and _ADAPTERS in bytes(kind)


def manages_adapters(text: str) -> bool:
    """Return whether a body is one about adapters, of any model.

    The model that it is for reads it once more: in doubt the answer is yes.
    """
    # No other spelling of the name is JSON.
    may_have = "requestType" in text or "\\u" in text
    if not may_have or text.lstrip(" \t\r\n")[:1] != "{":
        return False
    try:
        return _adapter_requests.decode(text).requestType is not msgspec.UNSET
    except msgspec.ValidationError:
        return False
    except UNREADABLE:
        return True


def _read_lmi_body(
    body: dict[str, Any], headers: dict[str, str], context: Context
) -> ParsedRequest:
    if context.clients.is_embedding:
        adapted = replace(context, adapter=_adapter(headers, context))
        return read_lmi_embedding(body["inputs"], adapted, is_body=True)
    parameters = body.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise RequestError("is not an object", field="parameters", value=parameters)
    given = {FIELDS[name].target for name in parameters if name in FIELDS}
    outside = {
        name: value
        for name, value in body.items()
        if name not in _LMI_MEMBERS and (name not in FIELDS or FIELDS[name].target not in given)
    }
    top = {name: body[name] for name in _TOP if body.get(name) is not None}
    if adapter := headers.get(ADAPTER):
        top["adapters"] = adapter
    return read_lmi(body["inputs"], outside | parameters | top, context, is_body=True)


def _headers(inputs: Mapping[str, list[Any]]) -> dict[str, str]:
    if "headers" not in inputs:
        return {}
    read = read_value(OBJECT, "headers", read_json("headers", inputs["headers"][0]))
    headers = {str(name).lower(): str(value) for name, value in read.items()}
    check_headers(headers)
    return headers


_PROMPTS: Final = ("request", "inputs", "text_input", "input_ids", "embedding_request")
_OWN: Final = frozenset({*_PROMPTS, *RETURNS, "sampling_parameters", "image", "path", "headers"})


def read_request(
    rows: Sequence[Mapping[str, list[Any]]],
    parameters: Mapping[str, object],
    context: Context,
    *,
    is_trtllm: bool = False,
    step: str = "",
) -> ParsedRequest:
    """Return what to do and how to answer.

    Args:
        rows: values of the input tensors that were sent, by name; one row, but for a model whose
            tensors have a batch dimension.
        is_trtllm: the model is for TensorRT-LLM's clients only, for any names they use.
        step: of their ensemble that the model does alone; empty for all.

    Raises:
        LmiError: naming the field that is wrong.
    """
    given = [{name: value for name, value in row.items() if value} for row in rows]
    # Whoever calls Triton is nearer than who wrote the body, and may speak for many.
    if step:
        read = read_preprocessing(given) if step == "preprocessing" else read_postprocessing(given)
    elif is_trtllm:
        read = _read_trtllm(given, parameters, context)
    else:
        read = _read(given, parameters, context)
    parsed = of_tenant(read, parameters, "tenant")
    try:
        _check_names(parsed)
    except RequestError as error:
        raise parsed.reply.failure(error) from error
    return parsed


def _read(
    rows: Sequence[Mapping[str, list[Any]]], parameters: Mapping[str, object], context: Context
) -> ParsedRequest:
    inputs = rows[0]
    given = [name for name in _PROMPTS if name in inputs]
    name = _one_prompt(given, _PROMPTS)
    if name == "request":
        return read_body(inputs, context)
    if name == "inputs":
        return _read_lmi(inputs, parameters, context)
    if name == "embedding_request":
        return read_embedding(inputs)
    if name == "input_ids" or len(rows) > 1 or _is_trtllm(inputs, parameters):
        return read_trtllm(rows, parameters, context)
    return read_vllm(inputs, dict(parameters) | scalars(_others(inputs)), context)


def _read_trtllm(
    rows: Sequence[Mapping[str, list[Any]]], parameters: Mapping[str, object], context: Context
) -> ParsedRequest:
    # Beside it stand input_ids and lengths that mean nothing: the peer's model must have them.
    if rows[0].get("stop") == [True]:
        if not context.clients.stop_by_id:
            raise RequestError("is switched off (option.stop_by_id=false)", field="stop")
        return ParsedRequest(Cancel(), TrtllmReply())
    accepted = ("text_input", "input_ids")
    _one_prompt([name for name in accepted if name in rows[0]], accepted)
    return read_trtllm(rows, parameters, context)


def _one_prompt(given: Sequence[str], accepted: Sequence[str]) -> str:
    if len(given) != 1:
        problem = "are both given" if given else "is missing"
        field = " and ".join(given[:2]) or "prompt"
        raise RequestError(problem, field=field, accepted=f"one of {', '.join(accepted)}")
    return given[0]


def _check_names(parsed: ParsedRequest) -> None:
    """Refuse names that nobody could keep or log, from any tensor, field or header.

    An OpenAI body is read in the worker, and the names in it are checked there.
    """
    match parsed.work:
        case AdapterChange(body):
            bounds = {"name": NAME_BYTES, "src": PATH_BYTES, "requestType": NAME_BYTES}
            for name, most in bounds.items():
                if isinstance(text := body.get(name), str):
                    check_name(name, text, most=most)
        case tuple(requests):
            for adapter in {request.adapter for request in requests}:
                check_name("adapter", adapter)


def _read_lmi(
    inputs: Mapping[str, list[Any]], parameters: Mapping[str, object], context: Context
) -> ParsedRequest:
    named = dict(parameters) | scalars(_others(inputs))
    prompts = inputs["inputs"]
    one = prompts[0] if len(prompts) == 1 else prompts
    if context.is_custom:
        return make_body(one, named)
    if context.clients.is_embedding:
        return read_lmi_embedding(one, context, is_body=False)
    return read_lmi(one, named, context, is_body=False)


def _others(inputs: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: value for name, value in inputs.items() if name not in _OWN}


def _is_trtllm(inputs: Mapping[str, object], parameters: Mapping[str, object]) -> bool:
    names = {*inputs, *parameters}
    return (
        bool(names & TRTLLM_ONLY)
        or "bad_words" in inputs
        or any(name.startswith("sampling_param_") for name in names)
    )
