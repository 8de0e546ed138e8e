"""Thousands of hostile bodies: each is read or refused by name, none does anything else."""

import random

from lmi_backend.clients.request import read_request
from lmi_backend.clients.spec import AdapterChange, ParsedRequest
from lmi_backend.errors import LmiError
from lmi_backend.generation import Chunk, Delta, HttpChunk, HttpRequest, Token
from lmi_backend.ipc.frames import encode
from lmi_backend.ipc.messages import Manage, Submit, SubmitHttp
from tests.support.harm.hostile import CONTEXTS, hostile

COUNT = 30_000


def test_every_body_is_read_or_refused() -> None:
    chance = random.Random(4)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(COUNT):
        rows, parameters = hostile(chance)
        try:
            taken = read_request(rows, parameters, chance.choice(CONTEXTS))
        except LmiError:
            outcomes["refused"] += 1
        else:
            outcomes["read"] += 1
            pack(taken)
            answer(taken)
    # Both happen often, or this would prove nothing.
    assert min(outcomes.values()) > COUNT / 20, outcomes


def answer(taken: ParsedRequest) -> None:
    """What was read can be answered, by at least one response that can be sent."""
    chunks: list[Chunk] = [HttpChunk(b'{"data": [{"embedding": [1.0]}]}', is_last=True)]
    if isinstance(taken.work, tuple):
        width = sum(request.n for request in taken.work)
        if width > 64:
            return
        token = Token(1, "a", -1.0)
        chunks = [Delta("a", 1, "stop", index=i, tokens=(token,)) for i in range(width)]
    elif not isinstance(taken.work, HttpRequest):
        return
    responses = [
        response
        for place, chunk in enumerate(chunks, start=1)
        for response in taken.reply.responses([chunk], is_last=place == len(chunks))
    ]
    assert responses


def pack(taken: ParsedRequest) -> None:
    """What was read can be sent to a worker."""
    if isinstance(taken.work, HttpRequest):
        encode([SubmitHttp(1, taken.work)])
    elif isinstance(taken.work, AdapterChange):
        encode([Manage(1, taken.work.body)])
    elif isinstance(taken.work, tuple):
        encode([Submit(1, taken.work)])
