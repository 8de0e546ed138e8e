"""Embeddings that are answered as earlier ones were, beside the same through vLLM's server."""

import json
import random
import re
from typing import Any

import pytest

from lmi_backend.engines.vllm.inside.embedding_bodies import MOST_CHARACTERS, MOST_INPUTS
from lmi_backend.engines.vllm.inside.known_embeddings import ENOUGH
from lmi_backend.generation import HttpRequest
from tests.contract.test_events import PROMPTS

pytestmark = pytest.mark.parametrize("engine", ["pooling"], indirect=True)

PATH = "/v1/embeddings"
THROUGH_SERVER = {"origin": "https://pages.example"}
CREATED = re.compile(rb'"created": ?\d+')
OF_PAGE = ("access-control-allow-origin", "vary")
KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"model": "lmi"},
    {"encoding_format": "float", "user": "née"},
    {"model": "lmi", "encoding_format": "base64"},
    {"dimensions": 5},
    {"dimensions": 16, "encoding_format": "base64"},
    {"dimensions": None, "encoding_format": "float"},
)
REFUSED: tuple[dict[str, Any], ...] = (
    {"input": []},
    {"input": "a " * 6000},
    {"input": [1] * 2000},
    {"input": [-1]},
    {"input": [1 << 40]},
    {"input": [10_000_000]},
    {"input": ["a", 1]},
    {"input": 5},
    {"input": {"a": 1}},
    {"input": "a", "dimensions": 0},
    {"input": "a", "dimensions": 1 << 20},
    {"input": "a", "encoding_format": "none"},
    {"input": "a", "model": "none"},
    {"encoding_format": "float"},
)
UNUSUAL: tuple[dict[str, Any], ...] = (
    {"input": ""},
    {"input": ["", "a"]},
    {"input": [True]},
    {"input": "a", "user": None},
    {"input": "a", "encoding_format": "base64", "embed_dtype": "float16"},
    {"input": "a", "encoding_format": "bytes"},
    {"input": "a b c d", "truncate_prompt_tokens": 2},
    {"input": ["a"] * (MOST_INPUTS + 1)},
    {"input": "a " * MOST_CHARACTERS, "truncate_prompt_tokens": 5},
    {"messages": [{"role": "user", "content": "a"}]},
)


def text(dice: random.Random) -> str:
    return f"{dice.choice(PROMPTS)} {dice.randrange(10_000)} \ud7ff née \U0001f600"


def ids(dice: random.Random) -> list[int]:
    return [dice.randrange(3, 250) for _ in range(dice.randrange(1, 40))]


INPUTS = (
    text,
    ids,
    lambda dice: [text(dice)],
    lambda dice: [ids(dice)],
    lambda dice: [text(dice) for _ in range(3)],
    lambda dice: [ids(dice) for _ in range(5)],
    lambda dice: ["the same", "the same", text(dice)],
)


def start(engine: Any, body: dict[str, Any], headers: dict[str, str] | None = None) -> Any:
    return engine.submit(HttpRequest(PATH, json.dumps(body).encode(), headers or {}))


def values(sink: Any) -> Any:
    """Return all that an answer tells, but for its time."""
    chunks = sink.wait().deltas
    headers = {name: each for name, each in chunks[0].headers.items() if name not in OF_PAGE}
    last = chunks[-1]
    counts = sum(each.num_tokens for each in chunks), last.num_prompt_tokens, last.is_last
    data = CREATED.sub(b'"created":0', b"".join(each.data for each in chunks))
    return chunks[0].status, list(headers.items()), counts, data


def compare(engine: Any, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
    """Have a body answered twice, the second time by the server."""
    given = headers or {"x-request-id": "7"}
    ours, theirs = start(engine, body, given), start(engine, body, given | THROUGH_SERVER)
    assert values(ours) == values(theirs), body


def test_known_embeddings_have_the_bytes_of_the_server(engine: Any) -> None:
    dice = random.Random(20261127)
    for number, asked in enumerate(KINDS):
        for make in (INPUTS * 2)[number : number + 3]:
            for _ in range(ENOUGH + 1):
                compare(engine, asked | {"input": make(dice)})
    # Each was learnt: one that could not be would have turned the path off.
    assert any("without vLLM's server from now on" in line for line in engine.output)
    (worker,) = engine.service.snapshot().workers
    off = {name for name, reason, _ in worker.stats.fast_paths if reason}
    assert "known_embeddings" not in off


def test_many_at_once_have_the_bytes_of_the_server(engine: Any) -> None:
    dice = random.Random(5)
    bodies = [{"input": dice.choice(INPUTS)(dice), "model": "lmi"} for _ in range(60)]
    for _ in range(ENOUGH):
        ours = [start(engine, body, {"x-request-id": "8"}) for body in bodies]
        assert {values(sink)[0] for sink in ours} == {200}
    theirs = [start(engine, body, {"x-request-id": "8"} | THROUGH_SERVER) for body in bodies]
    ours = [start(engine, body, {"x-request-id": "8"}) for body in bodies]
    for body, one, other in zip(bodies, ours, theirs, strict=True):
        assert close(values(one), values(other)), body


def close(one: Any, other: Any) -> bool:
    """Tell whether two answers are the same but for the last digits of what came in other steps."""
    if one[0] != other[0]:
        return False
    ours, theirs = (json.loads(each[3]) for each in (one, other))
    for data in zip(ours.pop("data"), theirs.pop("data"), strict=True):
        left, right = (each.pop("embedding") for each in data)
        if left != pytest.approx(right, abs=1e-5) or data[0] != data[1]:
            return False
    return bool(ours == theirs)


def test_ids_are_its_own(engine: Any) -> None:
    answers = [values(start(engine, {"input": "a", "model": "lmi"})) for _ in range(ENOUGH + 3)]
    ids = [json.loads(data)["id"] for *_, data in answers]
    assert len(set(ids)) == len(ids)
    assert {(each[:5], len(each)) for each in ids} == {("embd-", len(ids[0]))}


def test_what_the_server_refuses_is_refused_in_its_words(engine: Any) -> None:
    """However often: nothing is learnt of it, nor does the path end."""
    good = {"model": "lmi", "input": "a"}
    for _ in range(ENOUGH + 1):
        compare(engine, good)
        for body in (*REFUSED, *UNUSUAL):
            compare(engine, body)
    (worker,) = engine.service.snapshot().workers
    assert "known_embeddings" not in {name for name, why, _ in worker.stats.fast_paths if why}
