"""Hostile bodies over HTTP: every one is answered, and the model serves on."""

import json
import random

from tests.support.hostile import COUNT_OVER_HTTP, http_body
from tests.support.serving import Served


def test_every_body_is_answered(served: Served) -> None:
    chance = random.Random(11)
    seen = set()
    for _ in range(COUNT_OVER_HTTP):
        status, _ = served.generate("echo", http_body(chance))
        seen.add(status)
    # 500 is Triton's own word for JSON it cannot read into a tensor.
    assert {200, 400} <= seen <= {200, 400, 500}
    assert served.generate("echo", {"inputs": "a b"})[0] == 200


def test_large_bodies_are_answered_or_refused_by_their_bound(served: Served) -> None:
    """A chat with an image of 30 MB goes through; nothing ends a worker."""
    workers = [worker.pid for worker in served.workers("echo")]
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'A' * (30 << 20)}"}}
    body = {"model": "echo", "messages": [{"role": "user", "content": [image]}]}
    status, _, reply = served.ask("/v1/chat/completions", body)
    # The echo engine repeats such a body.
    assert (status, json.loads(reply)) == (200, body)
    prompt = {"inputs": "word " * 600_000}
    assert "tokens or more; accepted: fewer than" in served.generate("echo", prompt)[1]["error"]
    large = {"inputs": "a" * (64 << 20)}
    status, _, reply = served.ask("/invocations", large)
    assert (status, b"larger than 67108864 bytes" in reply) == (413, True)
    status, answer = served.generate("echo", large)
    assert (status, "(option.max_output_size)" in answer["error"]) == (400, True)
    assert [worker.pid for worker in served.workers("echo")] == workers
