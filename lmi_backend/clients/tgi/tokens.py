"""The tokens of a text or a chat, as the server of Text Generation Inference writes them.

Names and shapes: `/tokenize` and `/chat_tokenize` of its OpenAPI document.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec

from lmi_backend.clients.form import JSON, Ending
from lmi_backend.clients.lmi.formats.answers import dump
from lmi_backend.clients.spec import Read
from lmi_backend.clients.values import BOOLEAN, OBJECT, read_value
from lmi_backend.errors import HTTP_ERROR, HttpError, RequestError
from lmi_backend.generation import HttpChunk, HttpRequest
from lmi_backend.tokenization import SPANS_PATH, Spanning, Spans
from lmi_backend.unreadable import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.engine_config import Context
    from lmi_backend.errors import LmiError
    from lmi_backend.generation import Chunk


def read_text(body: dict[str, Any], context: Context) -> Read:
    """Read a body whose text is to be split into tokens. Raises RequestError: it is wrong."""
    if not isinstance(text := body.get("inputs"), str):
        raise RequestError("is missing, or is not a string", field="inputs")
    name = "add_special_tokens"
    given = body.get(name)
    special = True if given is None else read_value(BOOLEAN, name, given)
    return _asked(Spanning(text, special), context)


def read_chat(body: dict[str, Any], context: Context) -> Read:
    """Read a chat that the template turns into a text. Raises RequestError: it is wrong."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError("is not a list of messages", field="messages", value=messages)
    return _asked(Spanning(chat=read_value(OBJECT, "the body", body)), context)


def _asked(spanning: Spanning, context: Context) -> Read:
    if context.is_custom:
        raise RequestError("is read by a handler of the user's own", field="the body")
    request = HttpRequest(SPANS_PATH, msgspec.json.encode(spanning))
    return Read(request, SpansForm(is_chat=spanning.chat is not None))


class SpansForm:
    """A list of tokens, or an object of it and the text of a chat."""

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
