"""Whole HTTP bodies in the `request` tensor, and whole answers in `response`.

An HTTP gateway puts in what it got and writes out what it gets: nothing is lost between the two.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.errors import HttpError, LmiError, RequestError
from lmi_backend.generation import Call, Chunk
from lmi_backend.schema.embedding import read_lmi_embedding
from lmi_backend.schema.lmi import read_lmi
from lmi_backend.schema.parameters import read_json
from lmi_backend.schema.reply import AdapterChange, Response, Taken
from lmi_backend.schema.values import OBJECT, read_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lmi_backend.generation import Piece
    from lmi_backend.schema.context import Context

_ERROR: Final = 400
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
_TOP: Final = ("stream", "adapters", "model")
"""Fields of an LMI body beside `inputs` and `parameters`."""


def read_body(inputs: Mapping[str, list[Any]], context: Context) -> Taken:
    """Read the `request` tensor, with `path` and `headers` beside it.

    Raises:
        HttpError: the body is wrong; its text is what LMI would answer.
    """
    text = str(inputs["request"][0])
    path = str(inputs.get("path", [""])[0])
    headers = _headers(inputs)
    try:
        return _read(text, path, headers, context)
    except RequestError as error:
        raise _as_lmi(error) from error


def make_body(inputs: Any, named: Mapping[str, Any]) -> Taken:
    """Return tensors and parameters as the LMI body they stand for: the user's code reads it."""
    top = {name: value for name, value in named.items() if name in _TOP}
    parameters = {name: value for name, value in named.items() if name not in _TOP}
    body = {"inputs": inputs, "parameters": parameters} | top
    return Taken(Call(LMI_PATH, json.dumps(body).encode()), BodyReply())


def _read(text: str, path: str, headers: dict[str, str], context: Context) -> Taken:
    if context.is_custom and path in _LMI_PATHS:
        return Taken(Call(LMI_PATH, text.encode(), headers), BodyReply())
    if path not in _LMI_PATHS:
        if path not in _SERVED:
            shown = ", ".join(sorted(_SERVED))
            raise RequestError("is not served", field="path", value=path, accepted=shown)
        return Taken(Call(path, text.encode(), headers), BodyReply())
    body = read_json("request", text)
    if "requestType" in body:
        return Taken(AdapterChange(read_value(OBJECT, "request", body)), BodyReply())
    # The order of LMI's own look at a body.
    if "prompt" not in body and "inputs" in body:
        return _read_lmi(body, headers, context)
    for name, address in _PATHS.items():
        if name in body:
            return Taken(Call(address, text.encode(), headers), BodyReply())
    accepted = "inputs (LMI), messages, prompt or input (OpenAI), or requestType"
    raise RequestError("holds no prompt", field="request", accepted=accepted)


def _read_lmi(body: dict[str, Any], headers: dict[str, str], context: Context) -> Taken:
    if context.is_embedding:
        taken = read_lmi_embedding(body["inputs"], context, is_body=True)
        return Taken(taken.work, LmiBodyReply(taken.reply))
    parameters = body.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise RequestError("is not an object", field="parameters", value=parameters)
    top = {name: body[name] for name in _TOP if body.get(name) is not None}
    if adapter := headers.get("x-amzn-sagemaker-adapter-identifier"):
        top["adapters"] = adapter
    taken = read_lmi(body["inputs"], parameters | top, context, is_body=True)
    return Taken(taken.work, LmiBodyReply(taken.reply), taken.dropped)


def _headers(inputs: Mapping[str, list[Any]]) -> dict[str, str]:
    if "headers" not in inputs:
        return {}
    read = read_value(OBJECT, "headers", read_json("headers", inputs["headers"][0]))
    return {str(name).lower(): str(value) for name, value in read.items()}


def _as_lmi(error: LmiError) -> HttpError:
    """Return an error in LMI's words: 424 for whatever is wrong with a body or a step."""
    status = {"UNAVAILABLE": 503, "NOT_FOUND": 404}.get(error.code, 424)
    body = {"code": status, "error": str(error)}
    return HttpError(status, json.dumps(body, ensure_ascii=False))


@dataclass
class LmiBodyReply:
    """An LMI answer whose errors are bodies too."""

    inner: Any
    _has_written: bool = False

    @property
    def outputs(self) -> frozenset[str]:
        """Outputs the client named."""
        return frozenset(self.inner.outputs)

    @outputs.setter
    def outputs(self, names: frozenset[str]) -> None:
        self.inner.outputs = names

    def responses(self, pieces: Sequence[Piece], *, is_last: bool) -> list[Response]:
        """See `Reply`."""
        responses: list[Response] = self.inner.responses(pieces, is_last=is_last)
        if responses and not self._has_written and "headers" in self.outputs:
            head = {"status": 200, "content-type": self.inner.content_type}
            responses[0] |= {"headers": json.dumps(head)}
        self._has_written |= bool(responses)
        return responses

    def failure(self, error: LmiError) -> LmiError:
        """See `Reply`."""
        return _as_lmi(self.inner.failure(error))


@dataclass
class BodyReply:
    """Bytes as they come; an HTTP error becomes an error whose text is the body."""

    outputs: frozenset[str] = frozenset()
    _first: Chunk | None = None
    _held: list[bytes] = field(default_factory=list)

    def responses(self, pieces: Sequence[Piece], *, is_last: bool) -> list[Response]:
        """See `Reply`."""
        responses = []
        for piece in pieces:
            if isinstance(piece, Chunk):
                responses += self._chunk(piece, is_last=is_last)
        return responses

    def failure(self, error: LmiError) -> LmiError:
        """See `Reply`."""
        return error if isinstance(error, HttpError) else _as_lmi(error)

    def _chunk(self, chunk: Chunk, *, is_last: bool) -> list[Response]:
        is_first = self._first is None
        self._first = self._first or chunk
        if self._first.status >= _ERROR:
            self._held.append(chunk.data)
            if not is_last:
                return []
            raise HttpError(self._first.status, b"".join(self._held).decode("utf-8", "replace"))
        response: Response = {"response": chunk.data}
        if is_first and "headers" in self.outputs:
            response["headers"] = json.dumps({"status": chunk.status} | chunk.headers)
        return [response] if chunk.data or is_last or is_first else []
