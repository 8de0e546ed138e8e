"""What the bodies of some requests take from others: memory, and time of the one event loop."""

import asyncio
import gc
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.errors import HttpError
from lmi_backend.frontend.http.bodies import (
    Bodies,
    ClientGoneError,
    read_model,
    read_object,
)
from lmi_backend.frontend.http.exchange import Exchange
from lmi_backend.frontend.http.protocol import CLIENT, Client
from lmi_backend.json_text import MOST_VALUES
from lmi_backend.printable import MIB

KIB = 1 << 10


class Sender:
    """A client that sends a body in parts, as it is told."""

    def __init__(self) -> None:
        self.parts: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def send(self, size: int, *, more: bool = True) -> None:
        part = {"type": "http.request", "body": b"x" * size, "more_body": more}
        self.parts.put_nowait(part)

    def leave(self) -> None:
        self.parts.put_nowait({"type": "http.disconnect"})

    def read(self, bodies: Bodies, owner: str = "") -> Any:
        return asyncio.create_task(bodies.read(self.parts.get, owner=owner))


async def _settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_body_is_held_until_it_is_released() -> None:
    bodies, sender = Bodies(MIB), Sender()
    sender.send(200 * KIB)
    sender.send(100 * KIB, more=False)
    data, arrival = await sender.read(bodies)
    assert (len(data), bodies.held.size) == (300 * KIB, 236 * KIB)
    bodies.release(arrival)
    assert bodies.held.size == 0


async def test_when_all_are_too_many_the_largest_that_arrives_is_refused() -> None:
    bodies = Bodies(MIB)
    large, small = Sender(), Sender()
    reading = large.read(bodies)
    large.send(700 * KIB)
    await _settle()
    second = small.read(bodies)
    small.send(400 * KIB, more=False)
    with pytest.raises(HttpError, match="together") as refused:
        await reading
    assert refused.value.status == 503
    await second
    assert bodies.held.size == 336 * KIB


async def test_what_one_key_holds_costs_another_no_body() -> None:
    bodies = Bodies(MIB)
    kept, arriving, other = Sender(), Sender(), Sender()
    kept.send(500 * KIB, more=False)
    await kept.read(bodies, owner="a")
    reading = arriving.read(bodies, owner="a")
    arriving.send(200 * KIB)
    await _settle()
    other.send(300 * KIB, more=False)
    await other.read(bodies, owner="b")
    arriving.send(400 * KIB, more=False)
    with pytest.raises(HttpError, match="this key's requests"):
        await reading
    assert bodies.held.size == (500 - 64 + 300 - 64) * KIB


async def test_what_is_complete_is_kept_and_a_larger_one_refused() -> None:
    bodies = Bodies(MIB)
    kept, late, little = Sender(), Sender(), Sender()
    kept.send(800 * KIB, more=False)
    await kept.read(bodies)
    late.send(400 * KIB, more=False)
    with pytest.raises(HttpError, match="together"):
        await late.read(bodies)
    # Small ones have room always.
    little.send(64 * KIB, more=False)
    await little.read(bodies)
    assert bodies.held.size == 736 * KIB


@pytest.mark.parametrize("end", ["leaves", "is late", "is too large", "is too large at last"])
async def test_nothing_is_held_of_a_body_that_fails(end: str) -> None:
    bodies, sender = Bodies(64 * MIB, MIB, 0.05 if end == "is late" else 60), Sender()
    reading = sender.read(bodies)
    sender.send(500 * KIB)
    await _settle()
    if end == "leaves":
        sender.leave()
    elif end != "is late":
        sender.send(MIB, more=end == "is too large")
    with pytest.raises((HttpError, ClientGoneError)) as failed:
        await reading
    statuses = {"is late": 408, "leaves": None}
    assert getattr(failed.value, "status", None) == statuses.get(end, 413)
    assert bodies.held.size == 0


@pytest.fixture
def kept() -> Iterator[list[Any]]:
    """What only a collection of cycles would free."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("ends", [True, False])
async def test_an_ended_request_leaves_no_cycle(kept: list[Any], *, ends: bool) -> None:
    """Cycles are looked for after so many objects, not after so many bytes."""
    bodies = Bodies()

    async def ask() -> None:
        sender = Sender()
        scope = {"method": "POST", "path": "/", "headers": []}
        cycle: Any = SimpleNamespace(scope=scope, disconnected=not ends)
        client = cycle.scope[CLIENT] = Client(cycle)
        exchange = Exchange(cycle.scope, sender.parts.get, None, bodies)  # type: ignore[arg-type]
        client.on_gone = exchange.close
        sender.send(MIB)
        if ends:
            sender.send(MIB, more=False)
        else:
            sender.leave()
        try:
            await exchange.body()
        except ClientGoneError:
            pass
        finally:
            exchange.close()

    await asyncio.create_task(ask())
    gc.collect()
    large = [each for each in kept if isinstance(each, bytes | bytearray) and len(each) > KIB]
    ours = [each for each in kept if isinstance(each, Exchange | Client)]
    assert (large, ours, bodies.held.size) == ([], [], 0)


VALUES = {
    "lists": [[]] * 400_000,
    "objects": [{"": 0}] * 400_000,
    "numbers": list(range(400_000)),
    "strings": ["a,[{"] * 400_000,
    "members": {str(number): None for number in range(400_000)},
}
TEXTS = {
    "a text": "Once, there was [a] {story}. " * 100_000,
    "quotes": '"' * 1_000_000,
    "backslashes": "\\" * 1_000_000,
    "backslashes and quotes": '\\"' * 500_001,
    "odd": 'a\\\\"b,' * 300_001,
    "a picture": "A" * 20_000_000,
    "other letters": "é,漢\U0001f600" * 200_000,
}


@pytest.mark.parametrize("name", VALUES)
def test_too_many_values_are_refused(name: str) -> None:
    data = json.dumps({"inputs": "a", "x": VALUES[name]}).encode()
    with pytest.raises(HttpError, match=str(MOST_VALUES)) as refused:
        read_object(data)
    assert refused.value.status == 413


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("name", TEXTS)
def test_what_stands_in_a_string_is_no_value(name: str, *, ascii_only: bool) -> None:
    body = {"inputs": TEXTS[name], "more": [TEXTS[name], 1, 2]}
    data = json.dumps(body, ensure_ascii=ascii_only).encode()
    assert read_object(data) == body


def test_a_deep_body_is_refused() -> None:
    for data in (b"[" * 100_000, b'{"a":' * 100_000):
        with pytest.raises(HttpError) as refused:
            read_model(data)
        assert refused.value.status == 400
