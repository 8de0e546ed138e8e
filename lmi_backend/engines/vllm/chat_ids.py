"""The token ids of a chat as vLLM's own server makes them: its template, tools, and parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmi_backend.errors import HTTP_ERROR, HttpError
from lmi_backend.generation import HttpChunk, HttpRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.engines.vllm.inside.http_app import HttpApp

_READ: Final = (
    "messages", "tools", "chat_template_kwargs", "add_generation_prompt", "continue_final_message",
)  # fmt: skip
"""Members of a chat that make its prompt."""


class _Tokenized(msgspec.Struct):
    tokens: list[int]


class _Collected:
    def __init__(self) -> None:
        self.chunks: list[HttpChunk] = []

    def take(self, chunk: HttpChunk) -> None:
        self.chunks.append(chunk)

    def defer(self, flush: Callable[[], None], num_tokens: int) -> bool:
        return False

    async def drain(self) -> None:
        pass


async def chat_ids(app: HttpApp, body: dict[str, Any]) -> list[int]:
    """Return the ids of a body's chat.

    Raises:
        HttpError: the server refuses it.
    """
    asked = {name: body[name] for name in _READ if body.get(name) is not None}
    collected = _Collected()
    await app.respond(HttpRequest("/tokenize", msgspec.json.encode(asked)), collected)
    data, status = b"".join(each.data for each in collected.chunks), collected.chunks[0].status
    if status >= HTTP_ERROR:
        raise HttpError(status, data.decode("utf-8", "replace"))
    return msgspec.json.decode(data, type=_Tokenized).tokens
