"""Requests of the vLLM backend's clients for vectors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lmi_backend.clients.lmi.embedding import EmbeddingReply
from lmi_backend.clients.openai.paths import EMBEDDINGS
from lmi_backend.clients.parameters import read_json
from lmi_backend.clients.reply import ParsedRequest
from lmi_backend.clients.vllm.reading import requested_outputs
from lmi_backend.errors import RequestError
from lmi_backend.generation import HttpRequest


def read_embedding(inputs: Mapping[str, list[Any]]) -> ParsedRequest:
    """Read an `embedding_request`: the engine's own embeddings endpoint answers it.

    Raises:
        RequestError: it is not JSON, or lacks its input.
    """
    body = read_json("embedding_request", inputs["embedding_request"][0])
    if "input" not in body:
        raise RequestError("has no input", field="embedding_request", accepted="one text or ids")
    options = body.get("pooling_params") or {}
    dimensions = options.get("dimensions") if isinstance(options, dict) else None
    # The vLLM backend's clients send the number in a list.
    if isinstance(dimensions, list) and dimensions:
        dimensions = dimensions[0]
    requested = {"input": body["input"]} | ({"dimensions": dimensions} if dimensions else {})
    call = HttpRequest(EMBEDDINGS, json.dumps(requested).encode())
    return ParsedRequest(
        call, EmbeddingReply("embedding_request", "text_output", requested_outputs(inputs))
    )
