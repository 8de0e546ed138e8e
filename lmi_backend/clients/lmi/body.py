"""Whole HTTP bodies in the `request` tensor, and whole answers in `response`.

An HTTP gateway puts in what it got and writes out what it gets: nothing is lost between the two.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmi_backend.clients.fields import FIELDS
from lmi_backend.clients.lmi.body_reply import BodyReply, LegacyChatReply
from lmi_backend.clients.lmi.embedding import read_lmi_embedding
from lmi_backend.clients.lmi.errors import as_lmi
from lmi_backend.clients.lmi.paths import INVOCATIONS
from lmi_backend.clients.lmi.reading import read_lmi
from lmi_backend.clients.openai.paths import CHATS, COMPLETIONS, EMBEDDINGS
from lmi_backend.clients.parameters import read_json
from lmi_backend.clients.registry import PATHS, path_at
from lmi_backend.clients.reply import AdapterChange, ParsedRequest
from lmi_backend.clients.sagemaker.headers import check_extras
from lmi_backend.clients.values import MAX_WEIGHT, OBJECT, STRING, read_value
from lmi_backend.errors import RequestError
from lmi_backend.generation import HttpRequest
from lmi_backend.names import check_headers
from lmi_backend.unreadable import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmi_backend.engine_config import Context

_PATHS: Final = {"prompt": COMPLETIONS, "messages": CHATS, "input": EMBEDDINGS}
"""The field that tells an OpenAI body, and where it would have been sent."""
_OWN_PATHS: Final = ("", INVOCATIONS)
_QUICKLY_READ: Final = 1 << 18
"""Characters."""
_TOP: Final = ("stream", "adapters", "model")
"""Fields of an LMI body other than `inputs` and `parameters`."""
_OWN: Final = ("inputs", "parameters", *_TOP)
"""What else stands outside of `parameters` counts where it has no other name in them."""
ADAPTER: Final = "x-amzn-sagemaker-adapter-identifier"
"""The header by which SageMaker's clients choose a LoRA adapter."""
TENANT_HEADERS: Final = ("x-gateway-inference-fairness-id", "x-tenant-id")
"""The first one there counts; it is what Kubernetes' inference gateways call it."""


def read_body(inputs: Mapping[str, list[Any]], context: Context) -> ParsedRequest:
    """Read the `request` tensor, with the tensors `path` and `headers`.

    Raises:
        HttpError: the body is wrong; its text is what LMI would answer.
    """
    text = str(inputs["request"][0])
    path = str(inputs.get("path", [""])[0])
    try:
        headers = _headers(inputs)
    except RequestError as error:
        raise as_lmi(error) from error
    return read_http_body(text, path, headers, context)


def read_http_body(
    text: str, path: str, headers: dict[str, str], context: Context
) -> ParsedRequest:
    """Read a body that came to a path; raises like `read_body`."""
    return _of_sender(headers, lambda: _read(text, path, headers, context))


def read_large_body(
    body: dict[str, Any], data: bytes, headers: dict[str, str], context: Context
) -> ParsedRequest:
    """Read a body that came to `INVOCATIONS` and was read as JSON; raises like `read_body`.

    Args:
        body: the object.
        data: what it was read from; it is passed on where the engine reads it.
        headers: of the request.
        context: what the model is.
    """
    return _of_sender(headers, lambda: _read_object(body, data, headers, context))


def pass_on(data: bytes, headers: dict[str, str]) -> ParsedRequest:
    """Return a body that users' own code reads."""
    asked = ParsedRequest(HttpRequest(INVOCATIONS, data, headers), BodyReply())
    return _of_sender(headers, lambda: asked)


def _of_sender(headers: dict[str, str], read: Callable[[], ParsedRequest]) -> ParsedRequest:
    try:
        return of_tenant(read(), headers, *TENANT_HEADERS)
    except RequestError as error:
        raise as_lmi(error) from error


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


def _read(text: str, path: str, headers: dict[str, str], context: Context) -> ParsedRequest:
    if context.is_custom and path in _OWN_PATHS and not _is_management(text):
        return ParsedRequest(HttpRequest(INVOCATIONS, text.encode(), headers), BodyReply())
    if path not in _OWN_PATHS:
        served = path_at(path)
        if served is None or not served.by_tensor:
            shown = ", ".join(sorted({each.template for each in PATHS if each.by_tensor}))
            raise RequestError("is not served", field="path", value=path, accepted=shown)
        return ParsedRequest(HttpRequest(path, text.encode(), headers), BodyReply())
    return _read_object(read_json("request", text), text.encode(), headers, context, path)


def _read_object(
    body: dict[str, Any],
    data: bytes,
    headers: dict[str, str],
    context: Context,
    path: str = INVOCATIONS,
) -> ParsedRequest:
    check_extras(headers, body)
    if "requestType" in body:
        return ParsedRequest(AdapterChange(read_value(OBJECT, "request", body)), BodyReply())
    # What LMI's handlers look for before `inputs`.
    first = "messages" if context.clients.dialect == "legacy" else "prompt"
    if first not in body and "inputs" in body:
        return _read_lmi(body, headers, context)
    for name, address in _PATHS.items():
        if name in body:
            is_legacy = (
                path == INVOCATIONS and context.clients.dialect == "legacy" and name == "messages"
            )
            if is_legacy:
                data = _older_chat(data, body)
            data = _of_adapter(data, body, headers, context)
            reply = LegacyChatReply() if is_legacy else BodyReply()
            reply.has_lines = path == INVOCATIONS and context.clients.openai_lines
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
    if isinstance(weights, dict) and any(map(_is_beyond, weights.values())):
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
    """Return the adapter that a header or a path names.

    Raises:
        RequestError: they name different ones.
    """
    adapter = headers.get(ADAPTER, "")
    if adapter and context.adapter not in ("", adapter):
        problem = f"contradicts the model's name in the request, {context.adapter}"
        raise RequestError(problem, field=ADAPTER, value=adapter)
    return adapter or context.adapter


def _is_beyond(weight: object) -> bool:
    return isinstance(weight, int | float) and not -MAX_WEIGHT <= weight <= MAX_WEIGHT


def _is_management(text: str) -> bool:
    """Tell a request about adapters, which is not for the user's code."""
    return "_ADAPTER" in text and is_adapter_request(read_json("request", text))


def is_adapter_request(body: Mapping[str, object]) -> bool:
    """Tell whether an object is a request about adapters."""
    return "_ADAPTER" in str(body.get("requestType"))


class _AdapterRequest(msgspec.Struct):
    """What makes a body one about adapters."""

    requestType: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_adapter_requests: Final = msgspec.json.Decoder(_AdapterRequest)


def manages_adapters(text: str) -> bool:
    """Return whether a body is one about adapters, of any model.

    The model that it is for reads it once more: in doubt the answer is yes.
    """
    # No other spelling of the name is JSON.
    if "requestType" not in text and "\\u" not in text:
        return False
    try:
        return _adapter_requests.decode(text).requestType is not msgspec.UNSET
    except msgspec.ValidationError:
        return False
    except UNREADABLE:
        # Python's reader takes NaN and halves of surrogate pairs; it needs long for a large text.
        return len(text) > _QUICKLY_READ or _has_request_type(text)


def _has_request_type(text: str) -> bool:
    try:
        return "requestType" in read_json("request", text)
    except RequestError:
        return False


def _read_lmi(body: dict[str, Any], headers: dict[str, str], context: Context) -> ParsedRequest:
    if context.clients.is_embedding:
        asked = replace(context, adapter=_adapter(headers, context))
        return read_lmi_embedding(body["inputs"], asked, is_body=True)
    parameters = body.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise RequestError("is not an object", field="parameters", value=parameters)
    given = {FIELDS[name].target for name in parameters if name in FIELDS}
    outside = {
        name: value
        for name, value in body.items()
        if name not in _OWN and (name not in FIELDS or FIELDS[name].target not in given)
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
