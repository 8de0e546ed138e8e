"""Requests of the paths that pool: vectors, scores, classes and ranks, right and wrong."""

import json
from collections.abc import Iterator
from typing import Any

QUERY, OTHER = "The capital of France is", "Two plus three is"
TEXTS = (QUERY, "née à Zürich — 東京 🗼", "a" * 50, OTHER)
MESSAGES = [{"role": "user", "content": "Hi"}]
TOO_LONG = "a " * 3000
VECTORS: tuple[dict[str, Any], ...] = (
    *({"input": text} for text in TEXTS), {"input": TEXTS[:2]}, {"input": [1, 2, 3]},
    {"input": [[1, 2, 3], [4, 5]]}, {"input": QUERY, "encoding_format": "base64"},
    {"input": TEXTS[:2], "encoding_format": "float"}, {"input": QUERY, "encoding_format": None},
    {"input": QUERY, "encoding_format": "base64", "embed_dtype": "float16"},
    {"input": QUERY, "encoding_format": "base64", "endianness": "big"},
    {"input": QUERY, "encoding_format": "bytes"}, {"input": QUERY, "encoding_format": "bytes_only"},
    {"input": QUERY, "dimensions": 16}, {"input": QUERY, "user": "u"},
    {"input": QUERY, "priority": 0},
    {"input": QUERY, "truncate_prompt_tokens": 3}, {"input": QUERY, "add_special_tokens": False},
    {"input": QUERY, "use_activation": False}, {"input": QUERY, "normalize": False},
    {"input": QUERY, "request_id": "own"}, {"messages": MESSAGES},
    {"messages": MESSAGES, "add_generation_prompt": True},
    # Wrong ones.
    {}, {"input": None}, {"input": ""}, {"input": []}, {"input": [""]}, {"input": 5},
    {"input": {"a": 1}}, {"input": [1, "a"]}, {"input": [[]]}, {"input": [99999]}, {"input": [-1]},
    {"input": QUERY, "encoding_format": "x"}, {"input": QUERY, "dimensions": 0},
    {"input": QUERY, "dimensions": "x"}, {"input": TOO_LONG}, {"input": QUERY, "model": "nobody"},
    {"input": QUERY, "unknown": 1}, {"input": QUERY, "stream": True}, {"messages": []},
    {"input": QUERY, "truncate_prompt_tokens": -5},
)  # fmt: skip
POOLS: tuple[dict[str, Any], ...] = (
    {"input": QUERY}, {"input": TEXTS[:2]}, {"input": QUERY, "task": "embed"},
    {"input": QUERY, "task": "classify"}, {"input": QUERY, "task": "token_embed"},
    {"input": QUERY, "task": "token_classify"}, {"input": QUERY, "task": "none"},
    {"input": QUERY, "encoding_format": "base64"}, {"messages": MESSAGES}, {}, {"input": []},
    {"data": {"a": 1}},
)  # fmt: skip
SCORES: tuple[dict[str, Any], ...] = (
    {"text_1": QUERY, "text_2": OTHER}, {"text_1": QUERY, "text_2": TEXTS[1:]},
    {"text_1": TEXTS[:2], "text_2": TEXTS[2:]}, {"queries": QUERY, "documents": [OTHER]},
    {"text_1": TEXTS[:2], "text_2": TEXTS[:1]}, {}, {"text_1": QUERY},
    {"text_1": 5, "text_2": QUERY}, {"text_1": QUERY, "text_2": OTHER, "use_activation": False},
)  # fmt: skip
RANKS: tuple[dict[str, Any], ...] = (
    {"query": QUERY, "documents": TEXTS[1:]}, {"query": QUERY, "documents": TEXTS[1:], "top_n": 1},
    {"query": QUERY, "documents": OTHER}, {"query": QUERY, "documents": [OTHER], "top_n": 9},
    {"query": QUERY, "documents": [OTHER], "return_documents": False},
    {"query": QUERY, "documents": [OTHER], "truncate_prompt_tokens": 4},
    {"query": QUERY, "documents": [OTHER], "use_activation": False},
    # Wrong ones.
    {}, {"query": QUERY}, {"query": QUERY, "documents": []}, {"query": 5, "documents": [OTHER]},
    {"query": QUERY, "documents": [{"text": "a"}]}, {"query": TOO_LONG, "documents": [OTHER]},
    {"query": QUERY, "documents": [OTHER], "top_n": 0}, {"query": "", "documents": [""]},
    {"query": QUERY, "documents": [OTHER], "top_n": "x"},
    {"query": QUERY, "documents": [OTHER], "unknown": 1},
    {"query": QUERY, "documents": [OTHER], "model": "nobody"},
)  # fmt: skip
CLASSES: tuple[dict[str, Any], ...] = (
    {"input": QUERY}, {"input": TEXTS[:2]}, {"input": [1, 2, 3]}, {"messages": MESSAGES},
    {"input": QUERY, "use_activation": False}, {"input": QUERY, "add_special_tokens": False},
    {}, {"input": []}, {"input": None}, {"input": TOO_LONG}, {"input": QUERY, "unknown": 1},
)  # fmt: skip
_RANKING = dict.fromkeys(("/rerank", "/v1/rerank", "/v2/rerank"), RANKS)
_SCORING = dict.fromkeys(("/score", "/v1/score"), SCORES)
OF_VECTORS = {
    "/v1/embeddings": VECTORS,
    "/pooling": POOLS,
    **_SCORING,
    "/rerank": RANKS[:1],
    "/classify": CLASSES[:1],
    "/v1/completions": ({"prompt": "a"},),
    "/tokenize": ({"prompt": QUERY}, {"messages": MESSAGES}),
    "/detokenize": ({"tokens": [1, 70, 71]},),
}
"""Of a model that makes vectors: each path, and its bodies."""
OF_CLASSES = {
    **_RANKING,
    **_SCORING,
    "/classify": CLASSES,
    "/pooling": POOLS,
    "/v1/embeddings": VECTORS[:1],
}
"""The same of a model with one class, which ranks."""


def requests(of: dict[str, tuple[dict[str, Any], ...]], model: str) -> Iterator[dict[str, Any]]:
    """Yield records of requests to a model, as `replay` reads them."""
    headers = {"content-type": "application/json"}
    for path, bodies in of.items():
        for body in bodies:
            yield {"path": path, "headers": headers, "body": json.dumps({"model": model, **body})}
