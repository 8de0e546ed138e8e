"""Responses in the background, over real connections and a scripted model."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from lmi_backend.frontend.kept_answer import KeptAnswer
from lmi_backend.generation import HttpChunk, HttpRequest
from lmi_backend.ipc import messages as msg
from tests.support.failing_streams import EVENTS
from tests.support.scripted_model import NAME, Answered, Order, Scripted
from tests.support.waiting import wait_for
from tests.unit.frontend.test_keeping import LAST_ID, _keeping, _served

PATH = "/v1/responses"
BODY = {"model": NAME, "input": "a", "background": True}
WORDS = 4


class Model:
    """Answers a request in as many events as a test has let through."""

    def __init__(self, server: Scripted) -> None:
        self.server = server
        self.bodies: list[dict[str, Any]] = []
        self._count = 0
        server.models[NAME].script = self._script
        self.ends = True

    def _script(self, order: Order) -> Sequence[msg.ToClient]:
        assert isinstance(order, msg.SubmitHttp)
        request: HttpRequest = order.request
        self.bodies.append(json.loads(request.body))
        self._count += 1
        return [msg.HttpOutput(order.id, each) for each in self._chunks(f"resp_{self._count}")]

    def _chunks(self, name: str) -> Iterator[HttpChunk]:
        response = {"id": name, "status": "in_progress", "background": False, "output": []}
        events: list[dict[str, Any]] = [{"type": "response.created", "response": response}]
        text = 'a "response": "background":false'
        events += [{"type": "response.output_text.delta", "delta": text}] * WORDS
        if self.ends:
            done = response | {"status": "completed", "output": [{"text": text * WORDS}]}
            events.append({"type": "response.completed", "response": done})
        for number, event in enumerate(events):
            data = json.dumps(event | {"sequence_number": number}, separators=(",", ":"))
            block = f"event: {event['type']}\ndata: {data}\n\n".encode()
            is_last = self.ends and number == len(events) - 1
            headers = {} if number else {"content-type": EVENTS}
            yield HttpChunk(block, is_last, 200, headers, 1, 3)

    def begin(self, **more: Any) -> Answered:
        body = json.dumps(BODY | more, separators=(",", ":")).encode()
        return self.server.ask("POST", PATH, body)

    def state(self, name: str) -> dict[str, Any]:
        answer = self.server.ask("GET", f"{PATH}/{name}")
        return {"http": answer.status} | json.loads(answer.data)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    with _served(tmp_path_factory.mktemp("server"), 600).run() as server:
        yield server


@pytest.fixture
def model(server: Scripted) -> Iterator[Model]:
    model = Model(server)
    yield model
    for number in range(1, 9):
        server.ask("DELETE", f"{PATH}/resp_{number}")
    wait_for(lambda: _keeping(server)["kept"] == 0)


def test_it_is_answered_at_once_and_read_by_its_id(model: Model) -> None:
    answer = model.begin(max_output_tokens=9)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    first = json.loads(answer.data)
    assert first["id"] == "resp_1"
    assert first["background"] is True
    assert first["status"] in ("in_progress", "completed")
    # The engine makes a stream.
    (sent,) = model.bodies
    expected = {"background": False, "stream": True, "max_output_tokens": 9}
    assert sent == BODY | expected
    wait_for(lambda: model.state("resp_1")["status"] == "completed")
    state = model.state("resp_1")
    assert state["background"] is True
    # A text that looks like a member is not one.
    assert state["output"] == [{"text": 'a "response": "background":false' * WORDS}]
    for after in range(WORDS):
        query = f"stream=true&starting_after={after}"
        stream = model.server.ask("GET", f"{PATH}/resp_1?{query}")
        numbers = [
            json.loads(line[6:])["sequence_number"]
            for line in stream.data.splitlines()
            if line.startswith(b"data: ")
        ]
        assert numbers == list(range(after + 1, WORDS + 2))
    # One that is over is not cancelled.
    late = model.server.ask("POST", f"{PATH}/resp_1/cancel")
    assert json.loads(late.data)["status"] == "completed"
    assert model.state("resp_1")["status"] == "completed"


def test_a_stream_in_the_background_goes_on_without_its_client(model: Model) -> None:
    stream = model.begin(stream=True)
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.data.count(b'"background":true') == 2
    assert stream.has_end
    assert model.state("resp_1")["status"] == "completed"


def test_one_that_is_cancelled_says_so(model: Model) -> None:
    model.ends = False
    assert json.loads(model.begin().data)["status"] == "in_progress"
    found = model.server.front_end.models.find(NAME)
    assert found is not None
    wait_for(lambda: found.connection.num_open == 1)
    # Nobody reads it, and it runs on.
    (kept,) = model.server.front_end._keeping._kept.values()
    assert kept.is_away
    assert kept._timer is None
    cancelled = model.server.ask("POST", f"{PATH}/resp_1/cancel")
    assert json.loads(cancelled.data)["status"] == "cancelled"
    wait_for(lambda: found.connection.num_open == 0)
    wait_for(lambda: kept.is_over)
    assert model.state("resp_1")["status"] == "cancelled"
    # A stream of it has an end, and no error.
    stream = model.server.ask("GET", f"{PATH}/resp_1?stream=true")
    assert stream.has_end
    assert b"error" not in stream.data
    deleted = model.server.ask("DELETE", f"{PATH}/resp_1")
    assert json.loads(deleted.data)["deleted"] is True
    assert _keeping(model.server)["kept"] == 0


def test_one_that_fails_says_so(model: Model) -> None:
    model.ends = False
    script = model.server.models[NAME].script

    def fails(order: Order) -> Sequence[msg.ToClient]:
        return [*script(order), msg.Failure(order.id, "engine", "out of luck")]

    model.server.models[NAME].script = fails
    model.begin()
    wait_for(lambda: model.state("resp_1")["status"] == "failed")
    state = model.state("resp_1")
    assert state["error"]["message"].endswith("out of luck")
    assert state["background"] is True


def test_a_refusal_is_the_answer(model: Model) -> None:
    refusal = b'{"error":{"message":"no"}}'

    def refuses(order: Order) -> Sequence[msg.ToClient]:
        headers = {"content-type": "application/json"}
        return [msg.HttpOutput(order.id, HttpChunk(refusal, True, 400, headers, 0, 0))]

    model.server.models[NAME].script = refuses
    answer = model.begin()
    assert (answer.status, b"no" in answer.data) == (400, True)
    unstored = model.begin(store=False)
    assert unstored.status == 400
    assert json.loads(unstored.data)["error"]["param"] == "background"
    assert _keeping(model.server)["kept"] == 0


@pytest.mark.parametrize("value", [False, None, "true", 1])
def test_what_is_not_in_the_background_is_left_to_the_engine(model: Model, value: Any) -> None:
    model.begin(background=value)
    (sent,) = model.bodies
    assert sent == BODY | {"background": value}
    assert _keeping(model.server)["kept"] == 0


def test_it_is_kept_for_its_window_after_its_end_and_the_last_request(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows: list[KeptAnswer] = []
    start = KeptAnswer._start_window
    monkeypatch.setattr(
        KeptAnswer, "_start_window", lambda kept: (windows.append(kept), start(kept))
    )
    with _served(tmp_path_factory.mktemp("server"), 1).run() as server:
        model = Model(server)
        model.begin()
        wait_for(lambda: model.state("resp_1").get("status") == "completed")
        # From its end on, and from each of these on.
        assert len(windows) >= 2
        wait_for(lambda: _keeping(server)["kept"] == 0)
        assert len(server.models[NAME].keeps) == 1
        wait_for(lambda: server.models[NAME].forgotten == [windows[0].name])


def test_a_model_that_keeps_nothing_has_it_itself(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with _served(tmp_path_factory.mktemp("server"), 0).run() as server:
        model = Model(server)
        model.begin()
        assert model.bodies == [BODY]


def test_a_client_that_resumes_sends_the_same_body(model: Model) -> None:
    """Also here, where the answer is: another front end would need it."""
    body = json.dumps(BODY | {"stream": True}).encode()
    stream = model.server.ask("POST", PATH, body)
    name = stream.data.partition(b"id: ")[2].partition(b"\n")[0].decode()
    assert model.server.ask("POST", PATH, body, **{LAST_ID: name}).status == 200
    for other in (b"", body + b" ", json.dumps(BODY).encode()):
        assert model.server.ask("POST", PATH, other, **{LAST_ID: name}).status == 404


@pytest.mark.parametrize("more", [{}, {"stream": True}, {"background": False, "stream": True}])
def test_a_body_does_not_choose_the_id_of_what_is_kept(model: Model, more: dict[str, Any]) -> None:
    body = json.dumps(BODY | more | {"request_id": "resp_1"}).encode()
    answer = model.server.ask("POST", PATH, body, **{"x-lmi-resumable": "1"})
    error = json.loads(answer.data)["error"]
    assert (answer.status, error["param"]) == (400, "request_id")
    assert model.bodies == []
