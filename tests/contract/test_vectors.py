"""Vectors, and what vLLM's own server of a model without eyes would fetch, through the worker."""

import math
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytestmark = pytest.mark.parametrize("engine", ["pooling"], indirect=True)
TEXTS = ["Who wrote Hamlet?", "The capital of France is", "a b c"]


def _vectors(engine: Any, texts: str | list[str]) -> list[list[float]]:
    status, answer = engine.post("/v1/embeddings", {"input": texts}).answer
    assert status == 200, answer
    return [each["embedding"] for each in answer["data"]]


def test_a_text_has_one_vector_whatever_is_asked_with_it(engine: Any) -> None:
    together = _vectors(engine, TEXTS)
    with ThreadPoolExecutor(8) as pool:
        alone = [vectors for (vectors,) in pool.map(lambda each: _vectors(engine, each), TEXTS * 8)]
    for vector, expected in zip(alone, together * 8, strict=True):
        assert vector == pytest.approx(expected, abs=1e-4)
    for vector in together:
        assert math.hypot(*vector) == pytest.approx(1, abs=1e-4)
    assert math.dist(together[0], together[1]) > 0.01


RANKS = {"query": TEXTS[0], "documents": TEXTS}


@pytest.mark.parametrize(
    ("path", "body", "member"),
    [
        ("/score", {"text_1": TEXTS[0], "text_2": TEXTS}, "data"),
        ("/v1/score", {"queries": TEXTS[0], "documents": TEXTS}, "data"),
        ("/rerank", RANKS, "results"),
        ("/v1/rerank", RANKS, "results"),
        ("/v2/rerank", RANKS, "results"),
    ],
)
def test_a_score_is_how_alike_the_vectors_are(
    engine: Any, path: str, body: Any, member: str
) -> None:
    status, answer = engine.post(path, body).answer
    assert status == 200, answer
    one, *_ = vectors = _vectors(engine, TEXTS)
    expected = [sum(a * b for a, b in zip(one, each, strict=True)) for each in vectors]
    rows = sorted(answer[member], key=lambda each: int(each["index"]))
    scores = [each.get("score", each.get("relevance_score")) for each in rows]
    assert scores == pytest.approx(expected, abs=1e-3)


def test_other_servers_words_have_the_same_vectors(engine: Any) -> None:
    expected = _vectors(engine, TEXTS)
    status, answer = engine.post("/pooling", {"input": TEXTS}).answer
    assert status == 200, answer
    assert [each["data"] for each in answer["data"]] == [
        pytest.approx(v, abs=1e-4) for v in expected
    ]
    body = {"texts": TEXTS, "embedding_types": ["float"]}
    status, answer = engine.post("/v2/embed", body).answer
    assert status == 200, answer
    assert answer["embeddings"]["float"] == [pytest.approx(v, abs=1e-4) for v in expected]


def test_a_text_that_is_too_long_is_the_clients_error_alone(engine: Any) -> None:
    status, answer = engine.post("/v1/embeddings", {"input": "word " * 5000}).answer
    assert status == 400
    assert "tokens" in answer["error"]["message"]
    assert len(_vectors(engine, TEXTS)) == len(TEXTS)


@pytest.mark.parametrize("path", ["/v1/embeddings", "/pooling"])
def test_a_url_that_is_not_listed_is_the_clients_error(engine: Any, path: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        content = [{"type": "image_url", "image_url": {"url": url}}]
        body = {"messages": [{"role": "user", "content": content}]}
        status, answer = engine.post(path, body).answer
        assert status == 400
        assert "option.allowed_media_domains does not list" in answer["error"]["message"]
        with pytest.raises(BlockingIOError):
            listening.accept()
