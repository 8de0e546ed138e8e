"""Chunks that are kept for a front end that comes later."""

import random
import tracemalloc

from lmi_backend.generation import Chunk, Delta, HttpChunk, Token
from lmi_backend.ipc.kept_chunks import KeptChunks, chunks_in
from lmi_backend.token_ids import pack

EVENT = (
    b'data: {"id":"chatcmpl-%d","object":"chat.completion.chunk","created":1764185000,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":" %b"},"logprobs":null,"finish_reason":null}]}\n\n'
)


def _events(count: int, seed: int = 0) -> list[Chunk]:
    draw = random.Random(seed)
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(1, 9))) for _ in range(5000)]
    return [
        HttpChunk(
            EVENT % (seed, draw.choice(words).encode()),
            num_tokens=1,
            num_prompt_tokens=9,
            ids=pack([draw.randrange(100_000)]),
        )
        for _ in range(count)
    ]


def test_chunks_come_back_each_by_itself() -> None:
    token = Token(5, "a", -0.5, 1, top=(Token(6, "b", -1.5, 2),))
    deltas: list[Chunk] = [
        Delta("a", 1, num_prompt_tokens=3, tokens=(token,), ids=pack([5])),
        Delta("", 0, "stop", 7, 3, index=1),
    ]
    first = HttpChunk(b"", headers={"content-type": "text/event-stream"})
    for chunks in (deltas, [first, *_events(300)]):
        kept = KeptChunks()
        assert kept.is_empty
        for chunk in chunks:
            kept.add([chunk])
        blocks = kept.blocks()
        assert [chunk for some in chunks_in(blocks) for chunk in some] == chunks
        # What comes later is behind it.
        kept.add(chunks[:1])
        assert kept.blocks()[: len(blocks)] == blocks
        assert [chunk for some in chunks_in(kept.blocks()) for chunk in some] == [
            *chunks,
            chunks[0],
        ]


def test_a_kept_token_takes_less_than_a_hundred_bytes() -> None:
    answers, tokens = 20, 1000
    streams = [_events(tokens, seed) for seed in range(answers)]
    tracemalloc.start()
    try:
        kept = [KeptChunks() for _ in streams]
        for each, chunks in zip(kept, streams, strict=True):
            for chunk in chunks:
                each.add([chunk])
        taken = tracemalloc.get_traced_memory()[0]
        size = sum(each.size for each in kept)
        assert taken < 100 * answers * tokens
        assert taken < size < 100 * answers * tokens
        kept.clear()
        del each
        assert tracemalloc.get_traced_memory()[0] < 20_000
    finally:
        tracemalloc.stop()
