"""Streams whose clients leave and come back, over real connections and a real endpoint."""

import json
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.errors import MovedError
from lmi_backend.frontend.answer import Answer
from lmi_backend.frontend.connection import ModelConnection
from lmi_backend.frontend.http import exchange
from lmi_backend.frontend.http.api_keys import hash_of
from lmi_backend.frontend.resumable import WANTED
from lmi_backend.generation import Chunk, Delta, HttpChunk
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.messages import NOT_BUFFERED
from lmi_backend.tokenization import pack
from tests.support.answers.failing_streams import CHAT, CREATED, DELTA, EVENTS
from tests.support.answers.streams import request_of
from tests.support.doubles.buffering import (
    NAME,
    BufferingModel,
    Front,
    Order,
    Script,
    buffering_model,
)
from tests.support.doubles.cutting_proxy import LAST_ID, CuttingProxy, Stream, follow
from tests.support.doubles.endpoints import short_folder
from tests.support.doubles.scripted_model import OWN, Scripted
from tests.support.run.waiting import HANG_SECONDS, wait_for

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


def _chunks(path: str, words: int, *, ends: bool = True, first: int = 0) -> Iterator[Chunk]:
    event = STREAMS[path][1]
    for number in range(first, words):
        is_last, ids = ends and number == words - 1, pack([number])
        if event:
            data = CREATED * (path == "/v1/responses" and not number) + event % number
            headers = {} if number else {"content-type": EVENTS}
            yield HttpChunk(data + b"data: [DONE]\n\n" * is_last, is_last, 200, headers, 1, 3, ids)
        else:
            reason = "length" if is_last else None
            yield Delta(f"w{number} ", 1, reason, num_prompt_tokens=3, ids=ids)  # type: ignore[arg-type]


def _script(path: str = CHATS, words: int = WORDS, **more: Any) -> Script:
    def script(order: Order) -> Sequence[msg.FromWorker]:
        return [msg.Output(order.id, chunk) for chunk in _chunks(path, words, **more)]

    return script


def _body(path: str = CHATS) -> bytes:
    return json.dumps(STREAMS[path][0] | {"model": NAME}).encode()


@pytest.fixture(scope="module")
def run_folder() -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        yield from short_folder(patch)


@pytest.fixture(scope="module")
def model(run_folder: Path) -> Iterator[BufferingModel]:
    """No test waits for its window."""
    info = {"return_seconds": 600.0, "migration_limit": 5, "capacity": 100}
    with buffering_model(**info) as model:
        yield model


@pytest.fixture(scope="module")
def fronts(run_folder: Path, model: BufferingModel) -> Iterator[tuple[Front, Front]]:
    with Front(run_folder).run() as first, Front(run_folder).run() as second:
        yield first, second  # type: ignore[misc]


@pytest.fixture
def front(fronts: tuple[Front, Front]) -> Front:
    return fronts[0]


@pytest.fixture
def keyed(run_folder: Path, model: BufferingModel, tmp_path: Path) -> Iterator[Front]:
    file = tmp_path / "keys"
    file.write_text(
        f"one {hash_of('a')} running=1\nother {hash_of('b')} tokens-per-minute=5\n"
        f"third {hash_of('d')} requests-per-minute=2\n",
        "utf-8",
    )
    with Front(run_folder, api_keys=file).run() as server:
        yield server  # type: ignore[misc]


@contextmanager
def _asked(server: Scripted, path: str = CHATS, **headers: str) -> Iterator[socket.socket]:
    """Give a connection on which a stream is requested."""
    lines = [f"{name}: {value}" for name, value in headers.items()]
    with socket.create_connection(("127.0.0.1", server.port), timeout=HANG_SECONDS) as connection:
        connection.sendall(request_of(path, _body(path), *lines))
        yield connection


def _until(connection: socket.socket, mark: bytes, times: int = 1) -> bytes:
    """Return what comes until it has a mark, so many times."""
    received = b""
    while received.count(mark) < times:
        received += (part := connection.recv(1 << 16))
        assert part, received
    return received


def _leave(server: Scripted, path: str = CHATS, **headers: str) -> str:
    """Begin a stream, read its first event and leave; return the id of that event."""
    with _asked(server, path, **{WANTED: "1"}, **headers) as connection:
        received = _until(connection, b"\n\n")
    return received.partition(b"\nid: ")[2].partition(b"\n")[0].decode()


def _after(whole: Stream, number: int) -> bytes:
    """Return what a client gets that has so many events of a stream."""
    lines = [
        b"id: %b\n%b\n\n" % (name.encode(), event)
        for name, event in zip(whole.ids, whole.events, strict=True)
    ]
    return b"".join(lines[number:])


@pytest.mark.parametrize("path", STREAMS)
def test_a_client_that_comes_back_gets_exactly_what_follows(
    front: Front, model: BufferingModel, path: str
) -> None:
    """Each stream is cut at one byte after the other, in its head, in an event, between two."""
    model.script = _script(path)
    body = _body(path)
    with CuttingProxy(front.port).run() as proxy:
        whole = follow(proxy.port, path, body, **{WANTED: "1"})

        def is_plain() -> bool:
            # Without ids, words that come together share an event on a busy machine.
            plain = follow(front.port, path, body)
            assert plain.ids == []
            return plain.events == whole.events

        wait_for(is_plain)
        assert whole.ids == [f"{whole.ids[0][:-2]}.{n}" for n in range(1, len(whole.ids) + 1)]
        # Not the very end: events that come together take fewer bytes.
        places = range(0, proxy.passed - 80, 19)
        assert len(places) > 25

        def cut(place: int) -> None:
            mark = f"cut-{place}."
            proxy.cuts[mark.encode()] = place
            got = follow(proxy.port, path, body, **{WANTED: "1", "x-mark": mark})
            assert got.events == whole.events, place
            assert (got.connections, mark.encode() in proxy.cuts) == (2, False), place

        with ThreadPoolExecutor(6) as threads:
            list(threads.map(cut, places))


@pytest.mark.parametrize("path", STREAMS)
def test_another_front_end_has_it_too(
    fronts: tuple[Front, Front], model: BufferingModel, path: str
) -> None:
    model.script = _script(path, 30)
    first, second = fronts
    whole = follow(first.port, path, _body(path), **{WANTED: "1"})
    for number in (1, 2, 10, len(whole.events) - 1, len(whole.events)):
        back = {LAST_ID: whole.ids[number - 1]}
        answer = second.ask("POST", path, _body(path), **back)
        assert (answer.status, answer.has_end) == (200, True), answer
        assert answer.data == _after(whole, number)


def test_a_stream_that_asks_for_nothing_has_no_ids_and_is_not_buffered(
    front: Front, model: BufferingModel
) -> None:
    model.script = _script()
    before = model.counts()["answers"]
    answer = front.ask("POST", CHATS, _body())
    assert answer.data == b"".join(each.data for each in _chunks(CHATS, WORDS))  # type: ignore[union-attr]
    assert model.counts()["answers"] == before


@pytest.mark.parametrize(
    "name", ["", "x", "A" * 16 + ".1", "{}.7", "{}.0x1", "{}.-1", "{}.99999999999", "{}. 1"]
)
def test_an_id_that_is_not_buffered_gets_404_and_begins_nothing(
    front: Front, model: BufferingModel, name: str
) -> None:
    model.script = _script()
    first = _leave(front)
    wait_for(lambda: not model.open_requests())
    begun = len(model.orders)
    bad = name.format(first[:-2]).encode().decode("latin-1")
    answer = front.ask("POST", CHATS, _body(), **{LAST_ID: bad, WANTED: "1"})
    assert (answer.status, answer.headers["content-type"]) == (404, "application/json")
    assert json.loads(answer.data)["error"]["message"] == NOT_BUFFERED
    assert len(model.orders) == begun


@pytest.mark.parametrize("body", [b"", b"{", b'{"model": "none"}', b'{"model": "echo", "n": "x"}'])
def test_another_body_gets_404(front: Front, body: bytes) -> None:
    for path in STREAMS:
        answer = front.ask("POST", path, body, **{LAST_ID: f"{'A' * 16}.1"})
        assert answer.status == 404, (path, answer.data)


def test_another_path_or_key_gets_404(keyed: Front, model: BufferingModel) -> None:
    model.script = _script()
    first = _leave(keyed, authorization="Bearer a")
    asked = {LAST_ID: first, "authorization": "Bearer a"}
    wait_for(lambda: not model.open_requests())
    for path, key, status in (
        (CHATS, "b", 404), ("/v1/completions", "a", 404), ("/generate_stream", "a", 404),
        (CHATS, "c", 401), (CHATS, "a", 200),
    ):  # fmt: skip
        answer = keyed.ask("POST", path, _body(), **{**asked, "authorization": f"Bearer {key}"})
        assert answer.status == status, (path, key, answer.data)


def test_an_answer_without_its_client_counts_for_its_key(
    keyed: Front, model: BufferingModel
) -> None:
    model.script = _script(words=3, ends=False)
    key = {"authorization": "Bearer a"}
    first = _leave(keyed, **key)
    number = model.orders[-1].id
    assert keyed.ask("POST", CHATS, _body(), **key).status == 429
    # To come back runs nothing; then it counts no less, and no more.
    for _ in range(3):
        with _asked(keyed, **{LAST_ID: first}, **key) as connection:
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
    assert keyed.ask("POST", CHATS, _body(), **key).status == 429
    model.say(number, HttpChunk(b"data: [DONE]\n\n", is_last=True))
    model.script = _script()
    wait_for(lambda: keyed.ask("POST", CHATS, _body(), **key).status == 200)
    # Its tokens, too.
    other = {"authorization": "Bearer b"}
    model.script = _script(words=9)
    second = _leave(keyed, **other)
    wait_for(lambda: not model.open_requests())
    wait_for(lambda: keyed.ask("POST", CHATS, _body(), **other).status == 429)
    assert b"w8 " in keyed.ask("POST", CHATS, _body(), **{LAST_ID: second, **other}).data


def test_a_model_that_goes_lets_go_of_the_keys(keyed: Front, model: BufferingModel) -> None:
    model.script = _script(words=3, ends=False)
    _leave(keyed, authorization="Bearer a")
    model.die()
    model.open()
    model.script = _script()
    asked = {"authorization": "Bearer a"}
    wait_for(lambda: keyed.ask("POST", CHATS, _body(), **asked).status == 200)


def test_to_come_back_is_a_request_of_its_key(keyed: Front, model: BufferingModel) -> None:
    path, key = "/v1/responses", {"authorization": "Bearer d"}
    model.script = _script(path, words=3, ends=False)
    first = _leave(keyed, path, **key)
    assert keyed.ask("GET", f"{path}/resp_1", **key).status == 200
    for method, more, headers in (
        ("GET", "/resp_1", {}), ("GET", "/resp_1?stream=true", {}), ("POST", "/resp_1/cancel", {}),
        ("DELETE", "/resp_1", {}), ("POST", "", {LAST_ID: first}),
    ):  # fmt: skip
        answer = keyed.ask(method, path + more, _body(path), **key, **headers)
        assert answer.status == 429, (method, more, answer.data)


@pytest.mark.parametrize("message", [("dead", "it died"), ("engine", "out of luck")])
def test_an_answer_that_fails_fails_for_a_client_that_comes_back(
    front: Front, model: BufferingModel, message: tuple[Any, str]
) -> None:
    model.script = lambda order: [
        *_script(ends=False)(order), msg.Failure(order.id, *message)
    ]  # fmt: skip
    first = _leave(front)
    answer = front.ask("POST", CHATS, _body(), **{LAST_ID: first})
    *_, error, done = answer.data.split(b"\n\n")[:-1]
    assert answer.has_end
    assert message[1] in json.loads(error.partition(b"data: ")[2])["error"]["message"]
    assert done.endswith(b"data: [DONE]")
    # Who has the error, but not the end, gets it as the answer.
    name, _, last = done.partition(b"id: ")[2].partition(b"\n")[0].decode().partition(".")
    late = front.ask("POST", CHATS, _body(), **{LAST_ID: f"{name}.{int(last) - 1}"})
    assert (late.status >= 500, message[1] in late.data.decode()) == (True, True)


@pytest.mark.parametrize("other", [0, 1])
def test_a_client_that_is_back_ends_its_old_connection(
    fronts: tuple[Front, Front], model: BufferingModel, other: int
) -> None:
    model.script = _script(words=3, ends=False)
    with _asked(fronts[0], **{WANTED: "1"}) as old:
        received = _until(old, b"w2 ")
        ids = [line[4:] for line in received.decode().split("\n") if line.startswith("id: ")]
        with _asked(fronts[other], **{LAST_ID: ids[0]}) as new:
            while received := old.recv(1 << 16):
                # The end of the chunks is missing.
                assert not received.endswith(b"0\r\n\r\n")
            assert b"w0 " not in _until(new, b"w2 ")
        with _asked(fronts[other], **{LAST_ID: ids[-1]}) as last:
            # Who lacks nothing learns at once that it is back.
            assert _until(last, b": ping\n").startswith(b"HTTP/1.1 200 ")


def test_what_is_no_stream_of_events_is_answered_as_ever(
    front: Front, model: BufferingModel
) -> None:
    before = model.counts()["answers"]
    whole = HttpChunk(b"{}", True, 200, {"content-type": "application/json"}, 1, 3)
    wrong = HttpChunk(
        b'{"error":{"message":"a","type":"b"}}', True, 400, {"content-type": "application/json"}
    )
    for chunk in (whole, wrong):
        model.script = lambda order, chunk=chunk: [msg.Output(order.id, chunk)]
        plain, asked = (front.ask("POST", CHATS, _body(), **more) for more in ({}, {WANTED: "1"}))
        assert (
            (plain.status, plain.data) == (asked.status, asked.data) == (chunk.status, chunk.data)
        )
        assert plain.headers.keys() == asked.headers.keys()
    model.script = lambda order: [msg.Failure(order.id, "engine", "no")]
    assert front.ask("POST", CHATS, _body(), **{WANTED: "1"}).status >= 500
    lines = {"inputs": "a", "stream": True, "model": NAME}
    model.script = _script("/invocations")
    answer = front.ask("POST", "/invocations", json.dumps(lines).encode(), **{WANTED: "1"})
    assert b"w4 " in answer.data
    assert b"id: " not in answer.data
    wait_for(lambda: model.counts()["answers"] == before)


def test_a_ping_is_no_event_to_libraries_that_have_seen_an_id(
    front: Front, model: BufferingModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """openai's and anthropic's take each empty line after an id for an event: with data of none."""
    monkeypatch.setattr(exchange, "PING_SECONDS", 0.05)
    model.script = _script(words=3, ends=False)
    with _asked(front, **{WANTED: "1"}) as connection:
        assert b": ping\n\n" not in _until(connection, b"\r\n: ping\n\r\n", 2)


def test_users_code_may_have_ids_of_its_own(tmp_path: Path) -> None:
    chunk = HttpChunk(b"id: 7\ndata: a\n\n", True, 200, {"content-type": EVENTS})
    with Scripted(tmp_path).run() as server:
        server.models[OWN].script = lambda order: [msg.Output(order.id, chunk)]
        headers = {WANTED: "1", "x-amzn-sagemaker-target-model": OWN}
        answer = server.ask("POST", "/invocations", b'{"question": "a"}', **headers)
        assert answer.data == chunk.data


def test_a_client_may_come_back_while_the_server_drains(
    front: Front, model: BufferingModel
) -> None:
    model.script = _script()
    first = _leave(front)
    front.front_end.health.is_stopping = True
    try:
        assert front.ask("POST", CHATS, _body()).status == 503
        assert b"w4 " in front.ask("POST", CHATS, _body(), **{LAST_ID: first}).data
    finally:
        front.front_end.health.is_stopping = False


def test_a_client_that_returns_for_good_leaves_nothing(front: Front, model: BufferingModel) -> None:
    """So it cancels a stream: the connection is closed, and nothing is buffered."""
    model.script = _script(ends=False)
    before = model.counts()["answers"], model.open_requests()
    name = _leave(front)
    assert model.open_requests() == before[1] + 1
    with _asked(front, **{LAST_ID: name, WANTED: "0"}) as connection:
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    wait_for(lambda: (model.counts()["answers"], model.open_requests()) == before)
    assert front.ask("POST", CHATS, _body(), **{LAST_ID: name}).status == 404


def test_a_body_that_is_refused_late_counts_for_its_key_no_longer(keyed: Front) -> None:
    body = json.dumps(LMI | {"inputs": "a" * 2000, "model": NAME}).encode()
    headers = {WANTED: "1", "authorization": "Bearer a"}
    statuses = [keyed.ask("POST", "/generate_stream", body, **headers).status for _ in range(2)]
    assert statuses == [422, 422]


DIES = 10
"""Words before the model dies."""
HANDED_ON = [path for path in STREAMS if path != "/v1/responses"]


def _has_come(front: Front) -> bool:
    """Tell whether a front end has the first words of an only stream."""
    found = front.front_end.models.all()
    answers = [each for model in found for each in model.connection.answers.values()]
    sizes = [each.progress.size for each in answers if each.progress is not None]
    return sizes == [DIES * 4]


def _restart(model: BufferingModel, path: str) -> None:
    """Let a model die that has sent the first words of a stream, and resume it."""
    model.die()
    model.script = _script(path, 30, first=DIES)
    model.open()


def _where(order: Any) -> bytes:
    """Return the tokens that a request resumes after."""
    work = order.request if isinstance(order, msg.SubmitHttp) else order.requests[0]
    return bytes(work.continuation.ids)


def _through_a_death(front: Front, model: BufferingModel, path: str) -> Stream:
    """Return a stream whose model dies in the middle of it."""
    model.script = _script(path, DIES, ends=False)
    with ThreadPoolExecutor(1) as thread:
        whole = thread.submit(follow, front.port, path, _body(path), **{WANTED: "1"})
        wait_for(lambda: _has_come(front))
        _restart(model, path)
        return whole.result()


@pytest.mark.parametrize("path", HANDED_ON)
def test_a_stream_that_outlives_its_model_is_buffered_again(
    fronts: tuple[Front, Front], model: BufferingModel, path: str
) -> None:
    """Only who was away meanwhile, and lacks events of before, gets 404."""
    whole = _through_a_death(fronts[0], model, path)
    assert _where(model.orders[-1]) == b"".join(pack([number]) for number in range(DIES))
    model.script = _script(path, 30)
    plain = follow(fronts[0].port, path, _body(path), **{WANTED: "1"})
    assert whole.events == plain.events
    for number in (DIES, DIES + 1, len(whole.events) - 1, len(whole.events)):
        for front in fronts:
            front.wait()
            answer = front.ask("POST", path, _body(path), **{LAST_ID: whole.ids[number - 1]})
            assert (answer.status, answer.has_end) == (200, True), answer
            assert answer.data.removeprefix(b": ping\n") == _after(whole, number)
    for number in (1, DIES - 1):
        answer = fronts[1].ask("POST", path, _body(path), **{LAST_ID: whole.ids[number - 1]})
        assert answer.status == 404
        assert "the process of the model died" in answer.data.decode()


@pytest.mark.parametrize("path", [CHATS, "/invocations", "/generate_stream"])
def test_it_resumes_once_more_from_another_front_end(
    fronts: tuple[Front, Front], model: BufferingModel, path: str
) -> None:
    """The tokens of the first model count, and those that were read again."""
    first, second = fronts
    first.wait()
    second.wait()
    model.script = _script(path, DIES, ends=False)
    name = _leave(first, path)
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(second.ask, "POST", path, _body(path), **{LAST_ID: name})
        wait_for(lambda: _has_come(second))
        _restart(model, path)
        rest = asked.result()
    assert (rest.status, rest.has_end) == (200, True)
    assert rest.data.count(b"id: ") == 29 + rest.data.count(b"[DONE]")
    assert _where(model.orders[-1]) == b"".join(pack([number]) for number in range(DIES))


def test_the_model_may_buffer_all_streams_and_a_request_may_decline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for info, headers, has_ids in (
        ({"is_resumable": True}, {}, True), ({"is_resumable": True}, {WANTED: "0"}, False),
        ({"resume_window": 0}, {WANTED: "1"}, False),
    ):  # fmt: skip
        for folder in short_folder(monkeypatch):
            with buffering_model(**info) as model, Front(folder).run() as front:
                model.script = _script()
                assert bool(follow(front.port, CHATS, _body(), **headers).ids) == has_ids


async def test_a_client_that_does_not_read_may_come_back() -> None:
    """Without an error, which would be an event of the answer."""
    connection = ModelConnection(lambda _: None, lambda _: None)
    answer = Answer(connection, 1, None)
    answer.client = type(  # type: ignore[assignment]
        "Client", (), {"returns": True, "hand_over": lambda self: None}
    )()
    answer.end_unread()
    with pytest.raises(MovedError):
        await answer.read()


def test_a_client_that_leaves_again_at_once_loses_nothing(
    front: Front, model: BufferingModel
) -> None:
    model.script = _script(words=40)
    name = _leave(front)
    for _ in range(5):
        with _asked(front, **{LAST_ID: name}):
            pass

    def is_whole() -> bool:
        # One of those may come late, and close this one.
        answer = front.ask("POST", CHATS, _body(), **{LAST_ID: name})
        assert answer.status == HTTPStatus.OK
        return b'"w1 "' in answer.data and answer.data.endswith(b"data: [DONE]\n\n")

    wait_for(is_whole)
