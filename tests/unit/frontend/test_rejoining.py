"""Streams that another front end had begun, whose chunks the model has kept."""

import asyncio
import json
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from lmi_backend.errors import EngineDeadError
from lmi_backend.frontend.http.api_keys import hash_of
from lmi_backend.frontend.keeping import WANTED
from lmi_backend.generation import Chunk
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.failures import failure_of
from lmi_backend.ipc.kept_chunks import KeptChunks, message_of
from lmi_backend.ipc.rejoining import NOT_KEPT, Rejoin, Rejoined
from lmi_backend.token_ids import pack
from tests.support import scripted_model
from tests.support.cutting_proxy import LAST_ID, follow
from tests.support.front_streams import request_of
from tests.support.scripted_model import NAME, Order, Scripted, nothing_kept
from tests.support.waiting import HANG_SECONDS, wait_for
from tests.unit.frontend.test_keeping import (
    CHATS,
    STREAMS,
    _body,
    _chunks,
    _keeping,
    _script,
    _served,
)

WORDS = 30
GONE = "A" * 16
"""Name of an answer of a front end that is gone."""


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    """No test waits for its window."""
    server = _served(tmp_path_factory.mktemp("server"), 600)
    model = server.models[NAME]
    info = replace(model.welcome.model, return_seconds=600.0, migration_limit=5, capacity=100)
    model.welcome = msg.Welcome(model.welcome.context, info)
    with pytest.MonkeyPatch.context() as patch, server.run():
        patch.setattr(scripted_model, "_PAUSE_SECONDS", 0.001)
        yield server


@pytest.fixture(autouse=True)
def _new_front_end(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have each test begin with a front end that knows of no answer."""
    yield
    if "scripted" in request.fixturenames:
        _forget(request.getfixturevalue("scripted"))


@pytest.fixture
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    folder = tmp_path_factory.mktemp("server")
    file = folder / "keys"
    file.write_text(f"one {hash_of('a')} running=1\nother {hash_of('b')}\n", "utf-8")
    with _served(folder, 600, api_keys=file).run() as server:
        yield server


def _kept(path: str, before: int, *rest: msg.ToClient | None, words: int = WORDS) -> Any:
    """Return what has the chunks of a stream: so many together, and the others as they come."""
    chunks: list[Chunk] = list(_chunks(path, words))
    for number, chunk in enumerate(chunks):
        chunk.ids = pack([number])

    def kept(order: Rejoin) -> Sequence[msg.ToClient | None]:
        kept = KeptChunks()
        for chunk in chunks[:before]:
            kept.add([chunk])
        later = rest or [message_of(order.id, chunk) for chunk in chunks[before:]]
        return [Rejoined(order.id, kept.blocks()), *later]

    return kept


def _forget(server: Scripted, name: str = GONE) -> None:
    """Have the front end know nothing of an answer, as a new one does."""
    keeping = server.front_end._keeping

    async def forget() -> None:
        if (kept := keeping._kept.get(name)) is not None:
            keeping.forget(kept)

    assert server.loop is not None
    asyncio.run_coroutine_threadsafe(forget(), server.loop).result(HANG_SECONDS)


@pytest.mark.parametrize("before", [1, 10, WORDS])
@pytest.mark.parametrize("path", STREAMS)
def test_a_client_gets_what_follows_from_another_front_end(
    scripted: Scripted, path: str, before: int
) -> None:
    model = scripted.models[NAME]
    model.script = _script(path, WORDS)
    whole = follow(scripted.port, path, _body(path), **{WANTED: "1"})
    model.kept = _kept(path, before)
    for number in (1, 2, before, WORDS - 1, len(whole.events)):
        answer = scripted.ask("POST", path, _body(path), **{LAST_ID: f"{GONE}.{number}"})
        assert (answer.status, answer.has_end) == (200, True), answer
        lines = [
            b"id: %b.%d\n%b\n\n" % (GONE.encode(), place, event)
            for place, event in enumerate(whole.events, start=1)
        ]
        assert answer.data == b"".join(lines[number:]), number
        _forget(scripted)


def test_it_is_kept_here_then(scripted: Scripted) -> None:
    scripted.models[NAME].kept = _kept(CHATS, 10)
    before = _keeping(scripted)
    answer = scripted.ask("POST", CHATS, _body(), **{LAST_ID: f"{GONE}.3"})
    assert b'"w3 "' in answer.data
    scripted.models[NAME].kept = nothing_kept
    # Here, too, another body is another request.
    assert scripted.ask("POST", CHATS, b"", **{LAST_ID: f"{GONE}.4"}).status == 404
    again = scripted.ask("POST", CHATS, _body(), **{LAST_ID: f"{GONE}.4"})
    assert answer.data.endswith(again.data)
    after = _keeping(scripted)
    assert (after["rejoined"], after["resumed"]) == (before["rejoined"] + 1, before["resumed"] + 2)
    _forget(scripted)
    wait_for(lambda: GONE in scripted.models[NAME].forgotten)


def test_many_connections_of_one_client_get_one_answer(scripted: Scripted) -> None:
    asked: list[Rejoin] = []
    kept = _kept(CHATS, 10)

    def counted(order: Rejoin) -> Any:
        asked.append(order)
        return kept(order)

    scripted.models[NAME].kept = counted

    def ask(number: int) -> bytes:
        return scripted.ask("POST", CHATS, _body(), **{LAST_ID: f"{GONE}.{number}"}).data

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(ask, range(8)))
    assert len(asked) == 1
    # Each closes the one before; one of them is the last.
    assert any(each.endswith(b"data: [DONE]\n\n") for each in answers)
    _forget(scripted)


@pytest.mark.parametrize("number", [WORDS + 7, 99999])
def test_an_event_that_never_came_gets_404(scripted: Scripted, number: int) -> None:
    scripted.models[NAME].kept = _kept(CHATS, 10)
    answer = scripted.ask("POST", CHATS, _body(), **{LAST_ID: f"{GONE}.{number}"})
    assert (answer.status, json.loads(answer.data)["error"]["message"]) == (404, NOT_KEPT)
    _forget(scripted)


@pytest.mark.parametrize("body", [b"", b"{", b'{"model": "none"}', b'{"model": "echo", "n": "x"}'])
def test_another_body_gets_404(scripted: Scripted, body: bytes) -> None:
    scripted.models[NAME].kept = nothing_kept
    for path in STREAMS:
        answer = scripted.ask("POST", path, body, **{LAST_ID: f"{GONE}.1"})
        assert answer.status == 404, (path, answer.data)


def test_key_path_and_body_make_the_owner(keyed: Scripted) -> None:
    model = keyed.models[NAME]
    model.script = _script()
    owners: list[str] = []

    def kept(order: Rejoin) -> Sequence[msg.ToClient | None]:
        owners.append(order.owner)
        return nothing_kept(order)

    model.kept = kept
    follow(keyed.port, CHATS, _body(), **{WANTED: "1", "authorization": "Bearer a"})
    (keep,) = model.keeps
    back = {LAST_ID: f"{keep.name}.1"}
    # What its own process keeps needs no model.
    assert keyed.ask("POST", CHATS, _body(), **back, authorization="Bearer b").status == 404
    assert not owners
    back = {LAST_ID: f"{GONE}.1"}
    other = _body().replace(b"}", b' , "seed": 1}')
    for key, path, body in (
        ("a", CHATS, _body()),
        ("b", CHATS, _body()),
        ("a", "/v1/completions", _body()),
        ("a", CHATS, other),
    ):
        assert keyed.ask("POST", path, body, **back, authorization=f"Bearer {key}").status == 404
    assert [owner == keep.owner for owner in owners] == [True, False, False, False]
    assert keep.seconds == 600


def test_an_answer_counts_for_its_key_again(keyed: Scripted) -> None:
    keyed.models[NAME].kept = _kept(CHATS, 5, msg.Health(is_ready=True))
    keyed.models[NAME].script = _script()
    lines = (f"{LAST_ID}: {GONE}.1", "authorization: Bearer a")
    with socket.create_connection(("127.0.0.1", keyed.port), timeout=HANG_SECONDS) as connection:
        connection.sendall(request_of(CHATS, _body(), *lines))
        received = b""
        while b"w4" not in received:
            received += connection.recv(1 << 16)
        refused = keyed.ask("POST", CHATS, _body(), authorization="Bearer a")
        assert refused.status == 429
    _forget(keyed)
    wait_for(lambda: keyed.ask("POST", CHATS, _body(), authorization="Bearer a").status == 200)


def test_a_client_that_leaves_again_at_once_loses_nothing(scripted: Scripted) -> None:
    scripted.models[NAME].kept = _kept(CHATS, 10)
    for _ in range(5):
        with socket.create_connection(
            ("127.0.0.1", scripted.port), timeout=HANG_SECONDS
        ) as connection:
            connection.sendall(request_of(CHATS, _body(), f"{LAST_ID}: {GONE}.1"))

    def is_whole() -> bool:
        # One of those may come late, and close this one.
        answer = scripted.ask("POST", CHATS, _body(), **{LAST_ID: f"{GONE}.1"})
        assert b'"w1 "' in answer.data
        return answer.data.endswith(b"data: [DONE]\n\n")

    wait_for(is_whole)
    _forget(scripted)


@pytest.mark.parametrize("path", [CHATS, "/generate_stream"])
def test_it_resumes_when_its_model_dies_then(scripted: Scripted, path: str) -> None:
    """The tokens that came before count as those that came here."""
    model = scripted.models[NAME]
    model.kept = _kept(path, 3, None)
    orders: list[Any] = []

    def script(order: Order) -> Sequence[msg.ToClient]:
        orders.append(order)
        return [message_of(order.id, chunk) for chunk in list(_chunks(path, WORDS))[3:]]

    model.script = script
    answer = scripted.ask("POST", path, _body(path), **{LAST_ID: f"{GONE}.1"})
    scripted.wait()
    (order,) = orders
    work = order.request if isinstance(order, msg.SubmitHttp) else order.requests[0]
    assert work.continuation is not None
    assert len(work.continuation.ids) == 3 * 4
    assert f'"w{WORDS - 1} ' in answer.data.decode()
    _forget(scripted)


def test_a_model_that_dies_before_it_has_said_anything_gives_no_other_answer(
    scripted: Scripted,
) -> None:
    model = scripted.models[NAME]
    model.kept = lambda order: [None]
    model.script = _script()
    answer = scripted.ask("POST", CHATS, _body(), **{LAST_ID: f"{GONE}.1"})
    assert answer.status >= 500
    scripted.wait()


def test_an_error_that_ended_it_ends_it_again(scripted: Scripted) -> None:
    chunks = _kept(CHATS, 3, msg.Health(is_ready=True))

    def kept(order: Rejoin) -> Sequence[msg.ToClient | None]:
        return [*chunks(order), failure_of(order.id, EngineDeadError("it died"))]

    scripted.models[NAME].kept = kept
    answer = scripted.ask("POST", CHATS, _body(), **{LAST_ID: f"{GONE}.2"})
    assert b"w2" in answer.data
    assert b"it died" in answer.data
    assert answer.data.endswith(b"data: [DONE]\n\n")
    _forget(scripted)


def test_what_another_front_end_takes_is_forgotten_here(scripted: Scripted) -> None:
    model = scripted.models[NAME]
    moved = msg.Failure(0, "moved", "another front end has the answer")

    def script(order: Order) -> Sequence[msg.ToClient]:
        chunks = [message_of(order.id, chunk) for chunk in _chunks(CHATS, 3, ends=False)]
        return [*chunks, msg.Failure(order.id, moved.kind, moved.message)]

    model.script = script
    before = _keeping(scripted)["kept"]
    with socket.create_connection(("127.0.0.1", scripted.port), timeout=HANG_SECONDS) as connection:
        connection.sendall(request_of(CHATS, _body(), f"{WANTED}: 1"))
        received = b""
        while part := connection.recv(1 << 16):
            received += part
    # Neither an error nor an end.
    assert b"w2" in received
    assert b"another" not in received
    assert not received.endswith(b"0\r\n\r\n")
    wait_for(lambda: _keeping(scripted)["kept"] == before)
