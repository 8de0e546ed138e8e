"""Events that are kept, and what of them follows an id."""

import random
import tracemalloc

import pytest

from lmi_backend.frontend.kept_events import KeptEvents

EVENT = (
    b'data: {"id":"chatcmpl-%d","object":"chat.completion.chunk","created":1764185000,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":" %b"},"logprobs":null,"finish_reason":null}]}\n\n'
)


def _events(count: int, seed: int = 0) -> list[bytes]:
    draw = random.Random(seed)
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(1, 9))) for _ in range(5000)]
    return [EVENT % (seed, draw.choice(words).encode()) for _ in range(count)]


def _all_after(kept: KeptEvents, number: int) -> list[bytes]:
    received = b""
    while number < kept.count:
        data, number = kept.after(number)
        received += data
    assert kept.after(number) == (b"", number)
    return [block + b"\n\n" for block in received.split(b"\n\n")[:-1]]


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_what_follows_each_event_is_what_came_whatever_the_parts_it_came_in(size: int) -> None:
    events = _events(150)
    whole = b"".join(events)
    kept = KeptEvents("name")
    for start in range(0, len(whole), size):
        kept.add(whole[start : start + size])
    assert kept.count == len(events)
    expected = [b"id: name.%d\n%b" % each for each in enumerate(events, start=1)]
    for number in range(len(events) + 1):
        assert _all_after(kept, number) == expected[number:]
    kept.end()
    assert _all_after(kept, 3) == expected[3:]


def test_a_comment_has_no_id_and_a_last_event_needs_no_empty_line() -> None:
    kept = KeptEvents("name")
    kept.add(b": ping\n\n\n\ndata: a\n\n: still here\n: yes\n\n: why\ndata: b\n\ndata: c")
    assert kept.count == 2
    kept.end()
    assert kept.after(0)[0] == (
        b"id: name.1\ndata: a\n\nid: name.2\n: why\ndata: b\n\nid: name.3\ndata: c\n\n"
    )


def test_what_was_forgotten_or_has_not_come_is_not_had() -> None:
    kept = KeptEvents("name")
    for event in _events(500):
        kept.add(event)
    size = kept.size
    assert kept.shrink()
    assert kept.size < size
    first = next(number for number in range(501) if kept.has(number))
    assert 100 < first < 400
    assert len(_all_after(kept, first)) == 500 - first
    for number in (0, first - 1, 501):
        assert not kept.has(number)
        with pytest.raises(LookupError):
            kept.after(number)
    while kept.shrink():
        pass
    assert kept.has(500)


def test_a_kept_token_takes_less_than_a_hundred_bytes() -> None:
    answers, tokens = 20, 1000
    streams = [_events(tokens, seed) for seed in range(answers)]
    tracemalloc.start()
    try:
        kept = [KeptEvents("name") for _ in streams]
        for each, events in zip(kept, streams, strict=True):
            for event in events:
                each.add(event)
        taken = tracemalloc.get_traced_memory()[0]
        size = sum(each.size for each in kept)
        assert taken < 100 * answers * tokens
        assert taken < size < 100 * answers * tokens
        kept.clear()
        del each
        assert tracemalloc.get_traced_memory()[0] < 10_000
    finally:
        tracemalloc.stop()
