"""Responses that are read by their ids, from any front end: over one real endpoint."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.frontend import resumable
from lmi_backend.frontend.http.api_keys import hash_of
from lmi_backend.frontend.resumable import LAST_ID, WANTED
from lmi_backend.generation import HttpChunk
from lmi_backend.ipc import messages as msg
from tests.support.answers.failing_streams import EVENTS
from tests.support.doubles.buffering import NAME, BufferingModel, Front, buffering_model
from tests.support.doubles.endpoints import short_folder
from tests.support.doubles.scripted_model import Answered, Scripted
from tests.support.run.waiting import HANG_SECONDS, wait_for

PATH = "/v1/responses"
ID = "resp_1"
OWN = f"{PATH}/{ID}"
BODY: dict[str, Any] = {"model": NAME, "input": "a", "background": True}
KEY = {"authorization": "Bearer a"}
OTHER = {"authorization": "Bearer b"}
STARTED = {"id": ID, "status": "in_progress", "background": False, "output": []}
SHOWN = STARTED | {"background": True}
TEXT = 'a "response": "background":false'
DONE = {"status": "completed", "output": [{"text": TEXT}]}
folder = pytest.fixture(short_folder)


def _event(number: int, kind: str, *, is_last: bool = False, **members: Any) -> HttpChunk:
    event = {"type": kind, "sequence_number": number} | members
    data = f"event: {kind}\ndata: {json.dumps(event, separators=(',', ':'))}\n\n".encode()
    return HttpChunk(data, is_last, 200, {} if number else {"content-type": EVENTS}, 1, 3)


BEGINNING = _event(0, "response.created", response=STARTED)
REST = (
    _event(1, "response.output_text.delta", delta=TEXT),
    _event(2, "response.completed", response=STARTED | DONE, is_last=True),
)


UNKNOWN = HttpChunk(b"{}", True, 404, {"content-type": "application/json"})


def _script(order: Any) -> list[msg.Output]:
    """Begin a response; the engine itself, which is asked until that is buffered, has none."""
    return [msg.Output(order.id, BEGINNING if order.request.path == PATH else UNKNOWN)]


@pytest.fixture
def model(folder: Path) -> Iterator[BufferingModel]:
    with buffering_model() as model:
        model.script = _script
        yield model


@pytest.fixture
def fronts(folder: Path, model: BufferingModel) -> Iterator[tuple[Front, Front]]:
    keys = folder / "keys"
    keys.write_text(f"one {hash_of('a')} running=1\nother {hash_of('b')}\n", "utf-8")
    with Front(folder, api_keys=keys).run() as first, Front(folder, api_keys=keys).run() as second:
        yield first, second  # type: ignore[misc]


def _begin(front: Front, model: BufferingModel, **more: Any) -> tuple[Answered, int]:
    """Begin a response; return its first answer, and its number."""
    answer = front.ask("POST", PATH, json.dumps(BODY | more).encode(), **KEY)
    return answer, model.orders[-1].id


def _get(front: Front, query: str = "") -> Answered:
    return front.ask("GET", OWN + query, **KEY)


def _state(front: Front) -> dict[str, Any]:
    answer = _get(front)
    assert answer.status == 200, answer
    return dict(json.loads(answer.data))


def test_each_front_end_has_it(model: BufferingModel, fronts: tuple[Front, Front]) -> None:
    first, second = fronts
    answer, number = _begin(first, model, max_output_tokens=9)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert json.loads(answer.data) == SHOWN
    # The engine makes a stream.
    sent = json.loads(model.orders[0].request.body)
    assert sent == BODY | {"background": False, "stream": True, "max_output_tokens": 9}
    assert [_state(each) for each in (second, first)] == [SHOWN] * 2
    # Nobody reads it, and it runs on.
    wait_for(lambda: model.counts()["alone"] == 1)
    model.say(number, *REST)
    for front in (second, first, second):
        # A text that looks like a member is not one.
        assert _state(front) == SHOWN | DONE
    for after, front in ((-1, first), (0, second), (1, first), (2, second)):
        stream = _get(front, f"?stream=true&starting_after={after}")
        numbers = [
            json.loads(line[6:])["sequence_number"]
            for line in stream.data.splitlines()
            if line.startswith(b"data: ")
        ]
        assert (numbers, stream.has_end) == ([*range(after + 1, 3)], True)
    for query, status in (("starting_after=x", 400), ("starting_after=99", 404)):
        assert _get(first, f"?stream=true&{query}").status == status
    # One that is over is not cancelled.
    for front in fronts:
        late = front.ask("POST", f"{OWN}/cancel", **KEY)
        assert json.loads(late.data)["status"] == "completed"
    assert _state(second)["status"] == "completed"


@pytest.mark.parametrize("place", [0, 1])
def test_one_that_is_cancelled_says_so(
    model: BufferingModel, fronts: tuple[Front, Front], place: int
) -> None:
    _, number = _begin(fronts[0], model)
    cancelled = fronts[place].ask("POST", f"{OWN}/cancel", **KEY)
    assert json.loads(cancelled.data)["status"] == "cancelled"
    wait_for(lambda: not model.open_requests())
    model.say(number, *REST)
    for front in fronts:
        assert _state(front) == SHOWN | {"status": "cancelled"}
        stream = _get(front, "?stream=true")
        assert (stream.has_end, b"error" in stream.data) == (True, False)
    # It counts for its key no longer.
    for front in fronts:
        wait_for(lambda front=front: _begin(front, model)[0].status == 200)  # type: ignore[misc]
        front.ask("POST", f"{OWN}/cancel", **KEY)


def test_who_reads_one_that_is_cancelled_sees_its_end(
    model: BufferingModel, fronts: tuple[Front, Front]
) -> None:
    with ThreadPoolExecutor(1) as thread:
        stream = thread.submit(_begin, fronts[0], model, stream=True)
        wait_for(lambda: model.counts()["answers"] == 1 and _get(fronts[1]).status == 200)
        fronts[1].ask("POST", f"{OWN}/cancel", **KEY)
        answer = stream.result()[0]
    assert (answer.has_end, b"error" in answer.data) == (True, False)
    assert answer.data.count(b'"background":true') == 1


def test_a_stream_in_the_background_goes_on_without_its_client(
    model: BufferingModel, fronts: tuple[Front, Front]
) -> None:
    script = model.script
    model.script = lambda order: [*script(order), *(msg.Output(order.id, e) for e in REST)]
    stream, _ = _begin(fronts[0], model, stream=True)
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.data.count(b'"background":true') == 2
    assert stream.has_end
    assert _state(fronts[1]) == SHOWN | DONE
    # A client that resumes sends the same body.
    name = stream.data.partition(b"id: ")[2].partition(b"\n")[0].decode()
    body = json.dumps(BODY | {"stream": True}).encode()
    assert fronts[1].ask("POST", PATH, body, **{LAST_ID: name}, **KEY).status == 200
    for other in (b"", body + b" ", json.dumps(BODY).encode()):
        assert fronts[1].ask("POST", PATH, other, **{LAST_ID: name}, **KEY).status == 404


VERBS = ("GET", ""), ("GET", "?stream=true"), ("DELETE", ""), ("POST", "/cancel")


@pytest.mark.parametrize("is_whole", [False, True])
def test_nobody_finds_what_another_deleted(
    model: BufferingModel, fronts: tuple[Front, Front], *, is_whole: bool
) -> None:
    first, second = fronts
    _, number = _begin(first, model)
    if is_whole:
        model.say(number, *REST)
    deleted = second.ask("DELETE", OWN, **KEY)
    assert json.loads(deleted.data) == {"id": ID, "object": "response", "deleted": True}
    wait_for(lambda: not model.open_requests())
    asked = len(model.orders)
    for front in fronts:
        for method, more in VERBS:
            assert front.ask(method, OWN + more, **KEY).status == 404
    # The engine, which may store it too, is not asked.
    assert len(model.orders) == asked


@pytest.mark.parametrize(("method", "more"), VERBS)
def test_nobody_else_finds_it(
    model: BufferingModel, fronts: tuple[Front, Front], method: str, more: str
) -> None:
    first, second = fronts
    _, number = _begin(first, model)
    model.say(number, *REST)
    for front in fronts:
        assert front.ask(method, OWN + more, **OTHER).status == 404
    assert _state(second)["status"] == "completed"


@pytest.mark.parametrize("verb", VERBS[2:])
def test_a_stream_that_is_resumable_is_found_too(
    model: BufferingModel, fronts: tuple[Front, Front], verb: tuple[str, str]
) -> None:
    first, second = fronts
    body = json.dumps(BODY | {"background": False, "stream": True}).encode()
    asked = KEY | {WANTED: "1"}
    with ThreadPoolExecutor(2) as thread:
        answer = thread.submit(first.ask, "POST", PATH, body, **asked)
        wait_for(lambda: model.counts()["answers"] == 1 and _get(second).status == 200)
        assert _state(second) == STARTED
        rest = thread.submit(_get, second, "?stream=true&starting_after=0")
        # The connection to the first one is closed, without an end.
        assert not answer.result().has_end
        model.say(model.orders[-1].id, REST[0])
        state = json.loads(first.ask(verb[0], OWN + verb[1], **KEY).data)
        assert state.get("status", "deleted") in ("cancelled", "deleted")
        # Who reads it gets an error, and nobody finds it then.
        assert b"response.failed" in rest.result().data
    wait_for(lambda: not model.open_requests())
    assert model.counts()["answers"] == 0
    name = rest.result().data.partition(b"id: ")[2].partition(b"\n")[0].decode()
    assert second.ask("POST", PATH, body, **asked, **{LAST_ID: name}).status == 404


@pytest.mark.parametrize("fails", [True, False])
def test_one_that_fails_or_has_no_end_says_so(
    model: BufferingModel, fronts: tuple[Front, Front], *, fails: bool
) -> None:
    _, number = _begin(fronts[0], model)
    if fails:
        model.endpoint.service.on_messages([msg.Failure(number, "engine", "out of luck")])
    else:
        model.say(number, HttpChunk(is_last=True))
    wait_for(lambda: _state(fronts[1])["status"] == "failed")
    state = _state(fronts[0])
    assert ("out of luck" in state["error"]["message"]) is fails
    assert state["background"] is True


def test_a_refusal_is_the_answer(model: BufferingModel, fronts: tuple[Front, Front]) -> None:
    refusal = b'{"error":{"message":"no"}}'
    chunk = HttpChunk(refusal, True, 400, {"content-type": "application/json"})
    model.script = lambda order: [msg.Output(order.id, chunk)]
    answer, _ = _begin(fronts[0], model)
    assert (answer.status, b"no" in answer.data) == (400, True)
    unstored, _ = _begin(fronts[0], model, store=False)
    assert unstored.status == 400
    assert json.loads(unstored.data)["error"]["param"] == "background"
    assert model.counts()["answers"] == 0
    empty = HttpChunk(b"", True, 200, {"content-type": EVENTS})
    model.script = lambda order: [msg.Output(order.id, empty)]
    assert _begin(fronts[0], model)[0].status == 500


@pytest.mark.parametrize(
    ("value", "window"), [(False, 600), (None, 600), ("true", 600), (1, 600), (True, 0)]
)
def test_what_is_not_in_the_background_or_cannot_be_buffered_is_left_to_the_engine(
    folder: Path, value: Any, window: int
) -> None:
    whole = HttpChunk(b"{}", True, 200, {"content-type": "application/json"})
    with buffering_model(resume_window=window) as model, Front(folder).run() as front:
        model.script = lambda order: [msg.Output(order.id, whole)]
        front.ask("POST", PATH, json.dumps(BODY | {"background": value}).encode())
        assert json.loads(model.orders[0].request.body) == BODY | {"background": value}
        assert model.counts()["answers"] == 0


def test_it_is_buffered_for_its_window_after_its_end_and_the_last_request(folder: Path) -> None:
    with buffering_model(resume_window=1) as model, Front(folder).run() as front:
        model.script = lambda order: [msg.Output(order.id, BEGINNING)]
        front.ask("POST", PATH, json.dumps(BODY).encode())
        (sink,) = model.endpoint.buffered.answers.values()
        wait_for(lambda: sink.is_alone)
        assert sink.ends_at == float("inf")
        model.say(model.orders[0].id, *REST)
        wait_for(lambda: sink.ends_at < float("inf"))
        first = sink.ends_at
        assert front.ask("GET", OWN).status == 200
        assert sink.ends_at > first
        wait_for(lambda: model.counts()["answers"] == 0)


@pytest.mark.parametrize("more", [{}, {"stream": True}, {"background": False, "stream": True}])
def test_a_body_does_not_choose_the_id_of_what_is_buffered(
    model: BufferingModel, fronts: tuple[Front, Front], more: dict[str, Any]
) -> None:
    body = json.dumps(BODY | more | {"request_id": ID}).encode()
    answer = fronts[0].ask("POST", PATH, body, **{WANTED: "1"}, **KEY)
    error = json.loads(answer.data)["error"]
    assert (answer.status, error["param"]) == (400, "request_id")
    assert model.orders == []


def test_a_model_that_is_gone_has_nothing(
    model: BufferingModel, fronts: tuple[Front, Front], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resumable, "_WAIT_SECONDS", 0.1)
    _begin(fronts[0], model)
    model.endpoint.close()
    wait_for(lambda: not fronts[1].front_end.models.all())
    assert _get(fronts[1]).status in (404, 503)


def test_a_model_that_a_new_front_end_does_not_know_yet_is_asked_too(
    model: BufferingModel, fronts: tuple[Front, Front]
) -> None:
    """It is so for a moment, after another model is known."""
    first, second = fronts
    _begin(first, model)
    models = second.front_end.models
    looked: list[bool] = []

    def info() -> Any:
        looked.append(True)
        return SimpleNamespace(resume_window=0)

    class Other(SimpleNamespace):
        info = property(lambda self: info())

    path, own = models.by_path.popitem()
    models.by_path[Path("x")] = Other(name="x", connection=None)  # type: ignore[assignment]
    with ThreadPoolExecutor(1) as thread:
        state = thread.submit(_get, second)
        wait_for(lambda: looked)
        del models.by_path[Path("x")]
        models.by_path[path] = own
        assert state.result().status == 200


def test_of_several_models_none_is_asked_for_a_response(tmp_path: Path) -> None:
    with Scripted(tmp_path).run() as server:
        for method, more in VERBS:
            answer = server.ask(method, f"{PATH}/resp_none{more}")
            assert answer.status == 404
            message = json.loads(answer.data)["error"]["message"]
            assert "no response of this id is buffered" in message


def test_a_client_that_leaves_meanwhile_costs_nothing(
    model: BufferingModel, fronts: tuple[Front, Front]
) -> None:
    model.script = lambda order: []
    line = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer a\r\n"
    body = json.dumps(BODY).encode()
    request = f"{line}content-length: {len(body)}\r\n\r\n".encode() + body
    with socket.create_connection(("127.0.0.1", fronts[0].port), HANG_SECONDS) as connection:
        connection.sendall(request)
        wait_for(model.open_requests)
    # Without an event nobody knows its id.
    wait_for(lambda: not model.open_requests())
    model.script = lambda order: [msg.Output(order.id, HttpChunk(b"{}", is_last=True))]
    asked = partial(fronts[0].ask, "POST", "/tokenize", b"{}", **KEY)
    wait_for(lambda: asked().status == 200)
    assert model.counts()["answers"] == 0
