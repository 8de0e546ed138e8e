"""Whole HTTP bodies in the `request` tensor, and whole answers in `response`.

An HTTP gateway puts in what it got and writes out what it gets: nothing is lost between the two.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmi_backend.errors import RequestError
from lmi_backend.generation import HttpRequest
from lmi_backend.names import check_headers
from lmi_backend.schema.body_reply import BodyReply, LegacyChatReply, as_lmi
from lmi_backend.schema.embedding import read_lmi_embedding
from lmi_backend.schema.lmi import read_lmi
from lmi_backend.schema.parameters import read_json
from lmi_backend.schema.reply import AdapterChange, ParsedRequest
from lmi_backend.schema.values import MAX_WEIGHT, OBJECT, STRING, read_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.schema.context import Context

_PATHS: Final = {
    "prompt": "/v1/completions",
    "messages": "/v1/chat/completions",
    "input": "/v1/embeddings",
}
"""The field that tells an OpenAI body, and where it would have been sent."""
_SERVED: Final = frozenset(
    {
        "/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/v1/models", "/v1/responses",
        "/v1/messages", "/tokenize", "/detokenize", "/pooling", "/classify", "/score", "/v1/score",
        "/rerank", "/v1/rerank", "/v2/rerank", "/version",
    }
)  # fmt: skip
"""What clients may reach of the engine's own server; the rest of it is for operators."""
LMI_PATH: Final = "/invocations"
_LMI_PATHS: Final = ("", LMI_PATH)
_QUICKLY_READ: Final = 1 << 18
"""Characters."""
_TOP: Final = ("stream", "adapters", "model")
"""Fields of an LMI body beside `inputs` and `parameters`."""
TENANT_HEADERS: Final = ("x-gateway-inference-fairness-id", "x-tenant-id")
"""The first one there counts; it is what Kubernetes' inference gateways call it."""


def read_body(inputs: Mapping[str, list[Any]], context: Context) -> ParsedRequest:
    """Read the `request` tensor, with `path` and `headers` beside it.

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
    try:
        return of_tenant(_read(text, path, headers, context), headers, *TENANT_HEADERS)
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
    return ParsedRequest(HttpRequest(LMI_PATH, json.dumps(body).encode()), BodyReply())


def _read(text: str, path: str, headers: dict[str, str], context: Context) -> ParsedRequest:
    if context.is_custom and path in _LMI_PATHS and not _is_management(text):
        return ParsedRequest(HttpRequest(LMI_PATH, text.encode(), headers), BodyReply())
    if path not in _LMI_PATHS:
        if path not in _SERVED:
            shown = ", ".join(sorted(_SERVED))
            raise RequestError("is not served", field="path", value=path, accepted=shown)
        return ParsedRequest(HttpRequest(path, text.encode(), headers), BodyReply())
    body = read_json("request", text)
    if "requestType" in body:
        return ParsedRequest(AdapterChange(read_value(OBJECT, "request", body)), BodyReply())
    # The order of LMI's own look at a body.
    if "prompt" not in body and "inputs" in body:
        return _read_lmi(body, headers, context)
    for name, address in _PATHS.items():
        if name in body:
            is_legacy = (
                path == LMI_PATH and context.clients.dialect == "legacy" and name == "messages"
            )
            if is_legacy:
                text = _older_chat(text, body)
            reply = LegacyChatReply() if is_legacy else BodyReply()
            return ParsedRequest(HttpRequest(address, text.encode(), headers), reply)
    accepted = "inputs (LMI), messages, prompt or input (OpenAI), or requestType"
    raise RequestError("holds no prompt", field="request", accepted=accepted)


def _older_chat(text: str, body: dict[str, Any]) -> str:
    """Return a chat body as LMI's older handlers read it.

    They pass over `top_logprobs` where no `logprobs` are asked, and refuse weights that vLLM cuts.

    Raises:
        RequestError: a weight is out of range.
    """
    weights = body.get("logit_bias")
    if isinstance(weights, dict) and any(map(_is_beyond, weights.values())):
        raise RequestError("value must be between -100 and 100.", field="logit_bias")
    if body.get("logprobs") or body.get("top_logprobs") is None:
        return text
    return json.dumps({name: value for name, value in body.items() if name != "top_logprobs"})


def _is_beyond(weight: object) -> bool:
    return isinstance(weight, int | float) and not -MAX_WEIGHT <= weight <= MAX_WEIGHT


def _is_management(text: str) -> bool:
    """Tell a request about adapters, which is not for the user's code."""
    return "_ADAPTER" in text and "_ADAPTER" in str(read_json("request", text).get("requestType"))


class _Order(msgspec.Struct):
    """What makes a body one about adapters."""

    requestType: object = msgspec.UNSET


_orders: Final = msgspec.json.Decoder(_Order)


def manages_adapters(text: str) -> bool:
    """Tell whether a body is one about adapters, for whatever model.

    It is read once more where it is meant: in doubt the answer is yes.
    """
    # No other spelling of the name is JSON.
    if "requestType" not in text and "\\u" not in text:
        return False
    try:
        return _orders.decode(text).requestType is not msgspec.UNSET
    except msgspec.ValidationError:
        return False
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        # Python's reader takes NaN and halves of surrogate pairs; it needs long for a large text.
        return len(text) > _QUICKLY_READ or _has_order(text)


def _has_order(text: str) -> bool:
    try:
        return "requestType" in read_json("request", text)
    except RequestError:
        return False


def _read_lmi(body: dict[str, Any], headers: dict[str, str], context: Context) -> ParsedRequest:
    if context.clients.is_embedding:
        return read_lmi_embedding(body["inputs"], context, is_body=True)
    parameters = body.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise RequestError("is not an object", field="parameters", value=parameters)
    top = {name: body[name] for name in _TOP if body.get(name) is not None}
    if adapter := headers.get("x-amzn-sagemaker-adapter-identifier"):
        top["adapters"] = adapter
    return read_lmi(body["inputs"], parameters | top, context, is_body=True)


def _headers(inputs: Mapping[str, list[Any]]) -> dict[str, str]:
    if "headers" not in inputs:
        return {}
    read = read_value(OBJECT, "headers", read_json("headers", inputs["headers"][0]))
    headers = {str(name).lower(): str(value) for name, value in read.items()}
    check_headers(headers)
    return headers
