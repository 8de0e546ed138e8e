"""The log of an answer."""

import random
import tracemalloc

from lmi_backend.generation import Chunk, Delta, HttpChunk, Token
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.chunk_log import ChunkLog, parts_in
from lmi_backend.tokenization import pack

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


def _in(log: ChunkLog) -> list[object]:
    return [part for block in log.blocks() for part in parts_in(block)]


def test_parts_come_back_each_by_itself() -> None:
    token = Token(5, "a", -0.5, 1, top=(Token(6, "b", -1.5, 2),))
    deltas: list[Chunk] = [
        Delta("a", 1, num_prompt_tokens=3, tokens=(token,), ids=pack([5])),
        Delta("", 0, "stop", 7, 3, index=1),
    ]
    first = HttpChunk(b"", headers={"content-type": "text/event-stream"})
    for chunks in (deltas, [first, *_events(300)]):
        log, parts = ChunkLog(), [msg.Output(7, chunk) for chunk in chunks]
        assert log.is_empty
        for part in parts:
            log.add([part])
        assert not log.is_empty
        blocks = log.blocks()
        assert _in(log) == parts
        # What comes later is behind it, an error too.
        log.add([msg.Failure(7, "engine", "no")])
        assert log.blocks()[: len(blocks)] == blocks
        assert _in(log) == [*parts, msg.Failure(7, "engine", "no")]


def test_a_token_takes_less_than_a_hundred_bytes() -> None:
    answers, tokens = 20, 1000
    streams = [_events(tokens, seed) for seed in range(answers)]
    tracemalloc.start()
    try:
        logs = [ChunkLog() for _ in streams]
        for each, chunks in zip(logs, streams, strict=True):
            for chunk in chunks:
                each.add([msg.Output(1, chunk)])
        taken = tracemalloc.get_traced_memory()[0]
        size = sum(each.size for each in logs)
        assert taken < 100 * answers * tokens
        assert taken < size < 100 * answers * tokens
        logs.clear()
        del each
        assert tracemalloc.get_traced_memory()[0] < 20_000
    finally:
        tracemalloc.stop()
