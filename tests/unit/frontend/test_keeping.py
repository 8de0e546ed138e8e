"""Streams whose clients leave and come back, over real connections and a scripted model."""

import json
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.clients.spec import TARGET
from lmi_backend.frontend import keeping
from lmi_backend.frontend.http import exchange
from lmi_backend.frontend.http.api_keys import hash_of
from lmi_backend.frontend.keeping import WANTED
from lmi_backend.generation import Chunk, Delta, HttpChunk
from lmi_backend.ipc import messages as msg
from tests.support import scripted_model
from tests.support.cutting_proxy import LAST_ID, CuttingProxy, follow
from tests.support.failing_streams import CHAT, CREATED, DELTA, EVENTS, dies, fails
from tests.support.front_streams import request_of
from tests.support.scripted_model import NAME, OWN, Order, Script, Scripted
from tests.support.waiting import HANG_SECONDS, wait_for

CHATS = "/v1/chat/completions"
WORDS = 5
LMI: dict[str, Any] = {"inputs": "a", "stream": True, "parameters": {"max_new_tokens": WORDS}}
STREAMS: dict[str, tuple[dict[str, Any], bytes]] = {
    CHATS: (CHAT, b'data: {"choices":[{"index":0,"delta":{"content":"w%d "}}]}\n\n'),
    "/v1/completions": (CHAT, b'data: {"choices":[{"index":0,"text":"w%d "}]}\n\n'),
    "/v1/messages": (CHAT, b'event: content_block_delta\ndata: {"delta":{"text":"w%d "}}\n\n'),
    "/v1/responses": (CHAT, DELTA.replace(b'"a"', b'"w%d "')),
    "/invocations": (LMI | {"parameters": {"output_formatter": "sse"}}, b""),
    "/generate_stream": (LMI, b""),
}
"""Path to the body of a stream, and to the event of a word where the engine's server writes it."""


def _chunks(path: str, words: int, *, ends: bool = True) -> Iterator[Chunk]:
    event = STREAMS[path][1]
    for number in range(words):
        is_last = ends and number == words - 1
        if event:
            data = CREATED * (path == "/v1/responses" and not number) + event % number
            headers = {} if number else {"content-type": EVENTS}
            yield HttpChunk(data + b"data: [DONE]\n\n" * is_last, is_last, 200, headers, 1, 3)
        else:
            yield Delta(f"w{number} ", 1, "length" if is_last else None, num_prompt_tokens=3)


def _script(path: str = CHATS, words: int = WORDS, *, ends: bool = True) -> Script:
    def script(order: Order) -> Sequence[msg.ToClient]:
        kind: Any = msg.HttpOutput if STREAMS[path][1] else msg.Output
        return [kind(order.id, chunk) for chunk in _chunks(path, words, ends=ends)]

    return script


def _body(path: str = CHATS) -> bytes:
    return json.dumps(STREAMS[path][0] | {"model": NAME}).encode()


def _served(base: Path, window: int, *, is_resumable: bool = False, **settings: Any) -> Scripted:
    """Return a front end whose model keeps answers for so many seconds."""
    server = Scripted(base, **settings)
    model = server.models[NAME]
    info = replace(
        model.welcome.model, resume_window=window, is_resumable=is_resumable, longest_token=10
    )
    model.welcome = msg.Welcome(model.welcome.context, info)
    return server


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    """No test waits for its window."""
    with (
        pytest.MonkeyPatch.context() as patch,
        _served(tmp_path_factory.mktemp("server"), 600).run() as server,
    ):
        patch.setattr(scripted_model, "_PAUSE_SECONDS", 0.001)
        yield server


@pytest.fixture
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    folder = tmp_path_factory.mktemp("server")
    file = folder / "keys"
    file.write_text(
        f"one {hash_of('a')} running=1\nother {hash_of('b')} tokens-per-minute=5\n"
        f"third {hash_of('d')} requests-per-minute=2\nfourth {hash_of('e')}\n",
        "utf-8",
    )
    with _served(folder, 600, api_keys=file).run() as server:
        yield server


def _keeping(server: Scripted) -> dict[str, int]:
    return server.front_end._keeping.counts(NAME)


def _leave(server: Scripted, path: str = CHATS, **headers: str) -> str:
    """Begin a stream, read its first event and leave; return the id of that event."""
    lines = [f"{name}: {value}" for name, value in (headers | {WANTED: "1"}).items()]
    with socket.create_connection(("127.0.0.1", server.port), timeout=HANG_SECONDS) as connection:
        connection.sendall(request_of(path, _body(path), *lines))
        received = b""
        while b"\n\n" not in received.partition(b"\r\n\r\n")[2]:
            received += connection.recv(1 << 16)
    return received.partition(b"\nid: ")[2].partition(b"\n")[0].decode()


@pytest.mark.parametrize("path", STREAMS)
def test_a_client_that_comes_back_gets_exactly_what_follows(scripted: Scripted, path: str) -> None:
    """Each stream is cut at one byte after the other, in its head, in an event, between two."""
    scripted.models[NAME].script = _script(path)
    body = _body(path)
    plain = follow(scripted.port, path, body)
    assert plain.ids == []
    with CuttingProxy(scripted.port).run() as proxy:
        whole = follow(proxy.port, path, body, **{WANTED: "1"})
        assert whole.events == plain.events
        assert whole.ids == [f"{whole.ids[0][:-2]}.{n}" for n in range(1, len(whole.ids) + 1)]
        # Not the very end, after which nothing is missing.
        places = range(0, proxy.passed - 5, 19)
        assert len(places) > 25

        def cut(place: int) -> None:
            mark = f"cut-{place}."
            proxy.cuts[mark.encode()] = place
            got = follow(proxy.port, path, body, **{WANTED: "1", "x-mark": mark})
            assert got.events == plain.events, place
            assert (got.connections, mark.encode() in proxy.cuts) == (2, False), place

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(cut, places))


def test_a_stream_that_asks_for_nothing_has_no_ids_and_is_not_kept(scripted: Scripted) -> None:
    scripted.models[NAME].script = _script()
    before = _keeping(scripted)
    answer = scripted.ask("POST", CHATS, _body())
    assert answer.data == b"".join(each.data for each in _chunks(CHATS, WORDS))  # type: ignore[union-attr]
    assert _keeping(scripted) == before


def test_an_answer_goes_on_while_its_client_is_away(scripted: Scripted) -> None:
    scripted.models[NAME].script = _script(words=200)
    first = _leave(scripted)
    connection = scripted.front_end.models.all()[0].connection
    wait_for(lambda: not connection.num_open)
    again = scripted.ask("POST", CHATS, _body(), **{LAST_ID: first})
    words = [f'"w{number} "'.encode() in again.data for number in range(200)]
    assert words == [False, *[True] * 199]
    # As often as it likes, and from any place.
    last = again.data.rpartition(b"\nid: ")[2].partition(b"\n")[0].decode()
    assert last == f"{first[:-2]}.201"
    assert scripted.ask("POST", CHATS, _body(), **{LAST_ID: last}).data == b""
    middle = scripted.ask("POST", CHATS, _body(), **{LAST_ID: f"{first[:-2]}.100"}).data
    assert again.data.endswith(middle)
    assert middle.startswith(f"id: {first[:-2]}.101\n".encode())


@pytest.mark.parametrize(
    "name", ["", "x", "A" * 16 + ".1", "{}.7", "{}.0x1", "{}.-1", "{}.99999999999", "{}. 1"]
)
def test_an_id_that_is_not_kept_gets_404_and_begins_nothing(scripted: Scripted, name: str) -> None:
    scripted.models[NAME].script = _script()
    first = _leave(scripted)
    scripted.models[NAME].script = _script(words=1)
    bad = name.format(first[:-2]).encode().decode("latin-1")
    answer = scripted.ask("POST", CHATS, _body(), **{LAST_ID: bad, WANTED: "1"})
    assert (answer.status, answer.headers["content-type"]) == (404, "application/json")
    assert "option.resume_window" in json.loads(answer.data)["error"]["message"]


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
def test_of_several_models_none_is_asked_for_a_response(scripted: Scripted, method: str) -> None:
    path = "/v1/responses/resp_none" + "/cancel" * (method == "POST")
    answer = scripted.ask(method, path)
    assert answer.status == 404
    assert "no response of this id is kept" in json.loads(answer.data)["error"]["message"]


def test_another_path_or_key_gets_404(keyed: Scripted) -> None:
    keyed.models[NAME].script = _script()
    first = _leave(keyed, authorization="Bearer a")
    asked = {LAST_ID: first, "authorization": "Bearer a"}
    (kept,) = (each for each in keyed.front_end._keeping._kept.values() if each.name in first)
    wait_for(lambda: kept.is_over)
    for path, key, status in (
        (CHATS, "b", 404), ("/v1/completions", "a", 404), ("/generate_stream", "a", 404),
        (CHATS, "c", 401), (CHATS, "a", 200),
    ):  # fmt: skip
        answer = keyed.ask("POST", path, _body(), **{**asked, "authorization": f"Bearer {key}"})
        assert answer.status == status, (path, key, answer.data)


def test_an_answer_without_its_client_counts_for_its_key(keyed: Scripted) -> None:
    keyed.models[NAME].script = _script(words=3, ends=False)
    first = _leave(keyed, authorization="Bearer a")
    refused = keyed.ask("POST", CHATS, _body(), authorization="Bearer a")
    assert refused.status == 429
    # To come back runs nothing.
    with socket.create_connection(("127.0.0.1", keyed.port), timeout=HANG_SECONDS) as connection:
        connection.sendall(
            request_of(CHATS, _body(), f"{LAST_ID}: {first}", "authorization: Bearer a")
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    keyed.models[NAME].script = _script(words=9)
    second = _leave(keyed, authorization="Bearer b")
    connection = keyed.front_end.models.all()[0].connection
    wait_for(lambda: connection.num_open == 1)
    assert keyed.ask("POST", CHATS, _body(), authorization="Bearer b").status == 429
    back = keyed.ask("POST", CHATS, _body(), **{LAST_ID: second, "authorization": "Bearer b"})
    assert b"w8" in back.data


def test_a_key_of_many_kept_answers_costs_no_other_key_its_own(
    keyed: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed.models[NAME].script = _script()
    first = _leave(keyed, authorization="Bearer a")
    monkeypatch.setattr(keeping, "ALL_KEPT_BYTES", 4 * _keeping(keyed)["kept_bytes"])
    held = keyed.front_end._keeping._kept
    for _ in range(9):
        wait_for(lambda: all(each.is_over and each.is_away for each in held.values()))
        _leave(keyed, authorization="Bearer e")
    back = {LAST_ID: first, "authorization": "Bearer a"}
    assert keyed.ask("POST", CHATS, _body(), **back).status == 200
    assert len(held) < 6


def test_to_come_back_is_a_request_of_its_key(keyed: Scripted) -> None:
    path, key = "/v1/responses", {"authorization": "Bearer d"}
    keyed.models[NAME].script = _script(path, words=3, ends=False)
    first = _leave(keyed, path, **key)
    assert keyed.ask("GET", f"{path}/resp_1", **key).status == 200
    for method, more, headers in (
        ("GET", "/resp_1", {}), ("GET", "/resp_1?stream=true", {}), ("POST", "/resp_1/cancel", {}),
        ("DELETE", "/resp_1", {}), ("POST", "", {LAST_ID: first}),
    ):  # fmt: skip
        answer = keyed.ask(method, path + more, _body(path), **key, **headers)
        assert answer.status == 429, (method, more, answer.data)


def test_nothing_is_kept_after_the_window(tmp_path_factory: pytest.TempPathFactory) -> None:
    with _served(tmp_path_factory.mktemp("server"), 1).run() as server:
        connection = server.front_end.models.all()[0].connection
        server.models[NAME].script = _script(words=3, ends=False)
        running = _leave(server)
        server.models[NAME].script = _script()
        done = follow(server.port, CHATS, _body(), **{WANTED: "1"}).ids[-1]
        wait_for(lambda: _keeping(server)["kept"] == 0)
        counts = {"kept": 0, "kept_bytes": 0, "resumed": 0, "lapsed": 1, "rejoined": 0}
        assert _keeping(server) == counts
        # And that it need not keep them either.
        wait_for(lambda: len(server.models[NAME].forgotten) == 2)
        assert {each.name for each in server.models[NAME].keeps} == {*server.models[NAME].forgotten}
        assert server.front_end._keeping._sizes.size == 0
        assert not server.front_end._keeping._away
        # The model is told, too.
        wait_for(lambda: not connection.num_open)
        for name in (running, done):
            assert server.ask("POST", CHATS, _body(), **{LAST_ID: name}).status == 404


@pytest.mark.parametrize("end", [dies, fails])
def test_an_answer_that_fails_fails_for_a_client_that_comes_back(
    scripted: Scripted, end: Any
) -> None:
    scripted.models[NAME].script = lambda order: [*_script(ends=False)(order), *end(order)]
    first = _leave(scripted)
    answer = scripted.ask("POST", CHATS, _body(), **{LAST_ID: first})
    *_, error, done = answer.data.split(b"\n\n")[:-1]
    assert answer.has_end
    assert json.loads(error.partition(b"data: ")[2])["error"]["message"]
    assert done.endswith(b"data: [DONE]")
    scripted.wait()


def test_a_client_that_is_back_ends_its_old_connection(scripted: Scripted) -> None:
    scripted.models[NAME].script = _script(words=3, ends=False)
    request = request_of(CHATS, _body(), f"{WANTED}: 1")
    with socket.create_connection(("127.0.0.1", scripted.port), timeout=HANG_SECONDS) as old:
        old.sendall(request)
        received = b""
        while b"w2" not in received:
            received += old.recv(1 << 16)
        name = received.partition(b"\nid: ")[2].partition(b"\n")[0].decode()
        with socket.create_connection(("127.0.0.1", scripted.port), timeout=HANG_SECONDS) as new:
            new.sendall(request_of(CHATS, _body(), f"{LAST_ID}: {name}"))
            while received := old.recv(1 << 16):
                # The end of the chunks is missing.
                assert not received.endswith(b"0\r\n\r\n")
            received = b""
            while b"w2" not in received:
                received += new.recv(1 << 16)
            assert b"w0" not in received


def test_what_is_no_stream_of_events_is_answered_as_ever(scripted: Scripted) -> None:
    before = _keeping(scripted)["kept"]
    whole = HttpChunk(b"{}", True, 200, {"content-type": "application/json"}, 1, 3)
    wrong = HttpChunk(
        b'{"error":{"message":"a","type":"b"}}', True, 400, {"content-type": "application/json"}
    )
    for chunk in (whole, wrong):
        scripted.models[NAME].script = lambda order, chunk=chunk: [msg.HttpOutput(order.id, chunk)]
        plain, asked = (
            scripted.ask("POST", CHATS, _body(), **more) for more in ({}, {WANTED: "1"})
        )
        assert (
            (plain.status, plain.data) == (asked.status, asked.data) == (chunk.status, chunk.data)
        )
        assert plain.headers.keys() == asked.headers.keys()
    scripted.models[NAME].script = lambda order: [*fails(order)]
    assert scripted.ask("POST", CHATS, _body(), **{WANTED: "1"}).status >= 500
    lines = {"inputs": "a", "stream": True, "model": NAME}
    scripted.models[NAME].script = _script("/invocations")
    answer = scripted.ask("POST", "/invocations", json.dumps(lines).encode(), **{WANTED: "1"})
    assert b"w4" in answer.data
    assert b"id: " not in answer.data
    assert _keeping(scripted)["kept"] == before


def test_what_is_kept_is_bounded(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted.models[NAME].script = _script(words=5)
    names = [follow(scripted.port, CHATS, _body(), **{WANTED: "1"}).ids[0] for _ in range(4)]
    size = _keeping(scripted)["kept_bytes"] // _keeping(scripted)["kept"]
    monkeypatch.setattr(keeping, "ALL_KEPT_BYTES", _keeping(scripted)["kept_bytes"] - size)
    names.append(follow(scripted.port, CHATS, _body(), **{WANTED: "1"}).ids[0])
    assert _keeping(scripted)["kept_bytes"] <= keeping.ALL_KEPT_BYTES
    # Those whose clients left first are the first to go.
    statuses = [scripted.ask("POST", CHATS, _body(), **{LAST_ID: name}).status for name in names]
    assert statuses == sorted(statuses, reverse=True)
    assert statuses[-1] == 200
    monkeypatch.setattr(keeping, "KEPT_BYTES", 9_000)
    scripted.models[NAME].script = _script(words=90, ends=False)
    lapsed = _keeping(scripted)["lapsed"]
    name = _leave(scripted)
    wait_for(lambda: _keeping(scripted)["lapsed"] == lapsed + 1)
    assert scripted.ask("POST", CHATS, _body(), **{LAST_ID: name}).status == 404


def test_a_ping_is_no_event_to_libraries_that_have_seen_an_id(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """openai's and anthropic's take each empty line after an id for an event: with data of none."""
    monkeypatch.setattr(exchange, "PING_SECONDS", 0.05)
    scripted.models[NAME].script = _script(words=3, ends=False)
    with socket.create_connection(("127.0.0.1", scripted.port), timeout=HANG_SECONDS) as connection:
        connection.sendall(request_of(CHATS, _body(), f"{WANTED}: 1"))
        received = b""
        while received.count(b"\r\n: ping\n\r\n") < 2:
            received += connection.recv(1 << 16)
    assert b": ping\n\n" not in received


def test_users_code_may_have_ids_of_its_own(scripted: Scripted) -> None:
    chunk = HttpChunk(b"id: 7\ndata: a\n\n", True, 200, {"content-type": EVENTS})
    scripted.models[OWN].script = lambda order: [msg.HttpOutput(order.id, chunk)]
    headers = {WANTED: "1", TARGET: OWN}
    answer = scripted.ask("POST", "/invocations", b'{"question": "a"}', **headers)
    assert answer.data == chunk.data


def test_a_client_may_come_back_while_the_server_drains(scripted: Scripted) -> None:
    scripted.models[NAME].script = _script()
    first = _leave(scripted)
    scripted.front_end._health.is_stopping = True
    try:
        assert scripted.ask("POST", CHATS, _body()).status == 503
        assert b"w4" in scripted.ask("POST", CHATS, _body(), **{LAST_ID: first}).data
    finally:
        scripted.front_end._health.is_stopping = False


def test_the_model_may_keep_all_streams_and_a_request_may_decline(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    server = _served(tmp_path_factory.mktemp("server"), 600, is_resumable=True)
    server.models[NAME].script = _script()
    with server.run():
        assert follow(server.port, CHATS, _body()).ids
        assert not follow(server.port, CHATS, _body(), **{WANTED: "0"}).ids
    server = _served(tmp_path_factory.mktemp("server"), 0)
    server.models[NAME].script = _script()
    with server.run():
        assert not follow(server.port, CHATS, _body(), **{WANTED: "1"}).ids


def test_a_kept_response_is_known_by_its_id(scripted: Scripted) -> None:
    path = "/v1/responses"

    def script(order: Order) -> Sequence[msg.ToClient]:
        chunks = list(_chunks(path, WORDS, ends=False))
        chunks[0].data = chunks[0].data.replace(b"resp_1", b"resp_2")  # type: ignore[union-attr]
        return [msg.HttpOutput(order.id, chunk) for chunk in chunks]  # type: ignore[arg-type]

    scripted.models[NAME].script = script
    first = _leave(scripted, path)
    for query, number in (("", 0), ("&starting_after=0", 1), ("&starting_after=3", 4)):
        with socket.create_connection(
            ("127.0.0.1", scripted.port), timeout=HANG_SECONDS
        ) as connection:
            line = f"GET {path}/resp_2?stream=true{query} HTTP/1.1\r\nhost: localhost\r\n\r\n"
            connection.sendall(line.encode())
            received = b""
            while b"w4" not in received:
                received += connection.recv(1 << 16)
        assert f"\nid: {first[:-2]}.{number + 1}\n".encode() in received
        assert f"\nid: {first[:-2]}.{number}\n".encode() not in received
    state = scripted.ask("GET", f"{path}/resp_2")
    assert json.loads(state.data) == {"id": "resp_2", "status": "in_progress", "output": []}
    for query, status in (("starting_after=x", 400), ("starting_after=99", 404)):
        assert scripted.ask("GET", f"{path}/resp_2?stream=true&{query}").status == status
    model = scripted.front_end.models.find(NAME)
    assert model is not None
    running = model.connection.num_open
    cancelled = scripted.ask("POST", f"{path}/resp_2/cancel")
    assert json.loads(cancelled.data)["status"] == "cancelled"
    wait_for(lambda: model.connection.num_open < running)
    assert scripted.ask("POST", path, _body(path), **{LAST_ID: first}).status == 404


def test_a_response_of_another_key_is_not_found_here(keyed: Scripted) -> None:
    path = "/v1/responses"
    keyed.models[NAME].script = _script(path)
    _leave(keyed, path, authorization="Bearer a")
    statuses = {}
    for method, more in (("GET", ""), ("GET", "?stream=true"), ("POST", "/cancel"), ("DELETE", "")):
        answer = keyed.ask(method, f"{path}/resp_1{more}", authorization="Bearer b")
        statuses[method, more] = answer.status
    assert set(statuses.values()) == {404}
    answer = keyed.ask("DELETE", f"{path}/resp_1", authorization="Bearer a")
    assert json.loads(answer.data) == {"id": "resp_1", "object": "response", "deleted": True}


def test_a_prompt_that_is_refused_late_counts_for_its_key_no_longer(keyed: Scripted) -> None:
    body = json.dumps(LMI | {"inputs": "a" * 2000, "model": NAME}).encode()
    headers = {WANTED: "1", "authorization": "Bearer a", TARGET: NAME}
    statuses = [keyed.ask("POST", "/generate_stream", body, **headers).status for _ in range(2)]
    assert statuses == [422, 422]


def test_a_client_that_returns_for_good_leaves_nothing(scripted: Scripted) -> None:
    """So it cancels a stream: the connection is closed, and nothing is kept."""
    scripted.models[NAME].script = _script(ends=False)
    found = scripted.front_end.models.find(NAME)
    assert found is not None
    before = _keeping(scripted)["kept"], found.connection.num_open
    name = _leave(scripted)
    assert found.connection.num_open == before[1] + 1
    with socket.create_connection(("127.0.0.1", scripted.port), timeout=HANG_SECONDS) as connection:
        lines = f"{LAST_ID}: {name}", f"{WANTED}: 0"
        connection.sendall(request_of(CHATS, _body(), *lines))
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    wait_for(lambda: (_keeping(scripted)["kept"], found.connection.num_open) == before)
    assert scripted.ask("POST", CHATS, _body(), **{LAST_ID: name}).status == 404
