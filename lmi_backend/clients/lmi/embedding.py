"""Requests for vectors: the engine's own embeddings endpoint answers them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lmi_backend.clients.lmi.body_reply import LmiBodyReply
from lmi_backend.clients.openai.paths import EMBEDDINGS
from lmi_backend.clients.reply import ParsedRequest, Response, rename_prompt
from lmi_backend.clients.values import read_prompts
from lmi_backend.engine_config import Context
from lmi_backend.errors import HTTP_SERVER_ERROR, EngineError, LmiError, RequestError
from lmi_backend.generation import Chunk, HttpChunk, HttpRequest


def read_lmi_embedding(inputs: object, context: Context, *, is_body: bool) -> ParsedRequest:
    """Read an LMI body of an embedding model; its answer is a list of vectors, also for one text.

    Raises:
        RequestError: `inputs` is neither a text nor a list of them.
    """
    prompts, _ = read_prompts("inputs", inputs)
    requested: dict[str, object] = {"input": prompts}
    if not context.clients.normalize:
        requested["use_activation"] = False
    if context.adapter:
        requested["model"] = context.adapter
    call = HttpRequest(EMBEDDINGS, json.dumps(requested).encode())
    reply = EmbeddingReply("inputs", "response" if is_body else "generated_text")
    return ParsedRequest(call, LmiBodyReply(reply) if is_body else reply)


@dataclass
class EmbeddingReply:
    """The vector, or a list of them, as JSON in one output."""

    content_type: ClassVar[str] = "application/json"

    field: str
    output: str
    outputs: frozenset[str] = frozenset()
    _data: bytes = b""
    _status: int = 200

    def responses(self, chunks: Sequence[Chunk], *, is_last: bool) -> list[Response]:
        for chunk in chunks:
            if isinstance(chunk, HttpChunk):
                self._status = chunk.status if not self._data else self._status
                self._data += chunk.data
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

    def failure(self, error: LmiError) -> LmiError:
        return rename_prompt(error, self.field)

    def _error(self, answer: Any) -> LmiError:
        """Return what the endpoint says is wrong."""
        error = answer.get("error", answer)
        message = str(error.get("message", error) if isinstance(error, dict) else error)
        if self._status < HTTP_SERVER_ERROR:
            return RequestError(f"is refused: {message}", field=self.field)
        return EngineError(message)
