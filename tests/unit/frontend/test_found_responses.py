"""Responses that one front end has begun, and another is asked for: over one real endpoint."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.endpoint.server import Endpoint
from lmi_backend.frontend import connection, found_responses, side
from lmi_backend.frontend.http.api_keys import hash_of
from lmi_backend.frontend.keeping import WANTED
from lmi_backend.generation import HttpChunk
from lmi_backend.ipc import messages as msg
from tests.support.cutting_proxy import LAST_ID
from tests.support.endpoints import open_endpoint, short_folder
from tests.support.failing_streams import EVENTS
from tests.support.idle_workers import IdleWorkers
from tests.support.scripted_model import Answered, Scripted
from tests.support.waiting import wait_for

PATH = "/v1/responses"
ID = "resp_1"
OWN = f"{PATH}/{ID}"
BODY = b'{"model":"m","input":"a","background":true}'
STREAM = BODY.replace(b'"background"', b'"stream":true,"background"')
KEY = {"authorization": "Bearer a"}
STARTED = {"id": ID, "status": "in_progress", "background": False, "output": []}
folder = pytest.fixture(short_folder)


class Front(Scripted):
    """A front end that finds the models in a folder."""

    def __init__(self, base: Path, **settings: Any) -> None:
        super().__init__(base, **settings)
        self.models.clear()

    def wait(self) -> None:
        """Wait until it knows the one model that is there."""
        wait_for(lambda: [each.name for each in self.front_end.models.all()] == ["m"])

    def kept(self) -> int:
        """Return how many answers it keeps."""
        return self.front_end._keeping.counts("m")["kept"]


class Model:
    """What answers: a test says what comes of its requests."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint, self.service = endpoint, endpoint._service
        self._count = 0

    def begin(self, ask: Callable[[], Answered]) -> tuple[Answered, int]:
        """Begin a response; return its first answer, and the service's number of it."""
        with ThreadPoolExecutor(1) as thread:
            answer, number = thread.submit(ask), self._next()
            self.say(number, "response.created", STARTED)
            return answer.result(), number

    def refuse(self, ask: Callable[[], Answered]) -> int:
        """Have the engine say that it knows nothing of a request; return its status."""
        with ThreadPoolExecutor(1) as thread:
            answer, number = thread.submit(ask), self._next()
            chunk = HttpChunk(b"{}", True, 404, {"content-type": "application/json"})
            self.service.on_messages([msg.HttpOutput(number, chunk)])
            return answer.result().status

    def say(self, number: int, kind: str, response: Any = None, *, is_last: bool = False) -> None:
        """Let an event come of a request."""
        event = {"type": kind, "sequence_number": self._count}
        event |= {"response": response} if response else {"delta": "a"}
        headers = {} if self._count else {"content-type": EVENTS}
        self._count += 1
        data = f"event: {kind}\ndata: {json.dumps(event)}\n\n".encode()
        self.service.on_messages(
            [msg.HttpOutput(number, HttpChunk(data, is_last, 200, headers, 1))]
        )

    def end(self, number: int) -> None:
        """Let two more events come, of which the second is the last."""
        self.say(number, "response.output_text.delta")
        done = STARTED | {"status": "completed", "output": ["a"]}
        self.say(number, "response.completed", done, is_last=True)

    def _next(self) -> int:
        wait_for(lambda: self.service._states)
        (number,) = self.service._states
        return number


@pytest.fixture
def model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    # Each front end is a process of its own in truth, and a thread here.
    process = SimpleNamespace(getpid=threading.get_ident)
    monkeypatch.setattr(connection, "os", process)
    monkeypatch.setattr(side, "os", process)
    endpoint = open_endpoint("m", IdleWorkers())
    endpoint._model = replace(endpoint._model, resume_window=600, longest_token=10)
    threads = endpoint._service._cancellation, endpoint._service._senders.ready
    for each in threads:
        each.start()
    yield Model(endpoint)
    endpoint.close()
    for each in threads:
        each.stop()


@pytest.fixture
def fronts(folder: Path, model: Model) -> Iterator[tuple[Front, Front]]:
    keys = folder / "keys"
    keys.write_text(f"one {hash_of('a')} running=1\nother {hash_of('b')}\n", "utf-8")
    with ExitStack() as stack:
        first, second = (stack.enter_context(Front(folder, api_keys=keys).run()) for _ in range(2))
        yield first, second  # type: ignore[misc]


def _get(front: Front, query: str = "", **headers: str) -> Answered:
    return front.ask("GET", OWN + query, **(KEY | headers))


def _state(front: Front) -> dict[str, Any]:
    answer = _get(front)
    assert answer.status == 200, answer
    return dict(json.loads(answer.data))


def test_each_front_end_has_it(model: Model, fronts: tuple[Front, Front]) -> None:
    first, second = fronts
    answer, number = model.begin(lambda: first.ask("POST", PATH, BODY, **KEY))
    assert json.loads(answer.data) == STARTED | {"background": True}
    assert _state(second) == STARTED | {"background": True}
    # Only one has it at a time.
    wait_for(lambda: (first.kept(), second.kept()) == (0, 1))
    assert second.front_end._keeping.counts("m")["rejoined"] == 1
    assert _state(first)["status"] == "in_progress"
    model.end(number)
    for front in (second, first, second):
        assert _state(front) == STARTED | {
            "status": "completed", "output": ["a"], "background": True,
        }  # fmt: skip
    # Also of one that is whole.
    wait_for(lambda: first.kept() == 0)
    for after, front, other in ((0, first, second), (1, second, first), (2, first, second)):
        stream = _get(front, f"?stream=true&starting_after={after}")
        assert stream.data.count(b"event: ") == 2 - after
        assert stream.has_end
        wait_for(lambda other=other: other.kept() == 0)  # type: ignore[misc]


def test_it_outlives_its_front_end(folder: Path, model: Model) -> None:
    with Front(folder).run() as first:
        _, number = model.begin(lambda: first.ask("POST", PATH, BODY))
    model.say(number, "response.output_text.delta")
    with Front(folder).run() as second:
        assert second.ask("GET", OWN).status == 200
    model.end(number)
    with Front(folder).run() as third, ThreadPoolExecutor(8) as threads:
        # All at once, and read from the model once.
        states = threads.map(lambda _: json.loads(third.ask("GET", OWN).data), range(8))
        assert [each["status"] for each in states] == ["completed"] * 8
        assert third.front_end._keeping.counts("m")["rejoined"] == 1
        assert third.ask("DELETE", OWN).status == 200
        wait_for(lambda: model.endpoint.kept.counts()["kept"] == 0)


def test_another_cancels_it(model: Model, fronts: tuple[Front, Front]) -> None:
    first, second = fronts
    model.begin(lambda: first.ask("POST", PATH, BODY, **KEY))
    cancelled = second.ask("POST", f"{OWN}/cancel", **KEY)
    assert json.loads(cancelled.data)["status"] == "cancelled"
    wait_for(lambda: not model.service._states)
    for front in (first, second):
        assert _state(front)["status"] == "cancelled"
        stream = _get(front, "?stream=true")
        assert (stream.has_end, b"error" in stream.data) == (True, False)
    # It counts for its key no longer.
    for front in fronts:
        asked = partial(front.ask, "POST", PATH, BODY, **KEY)
        wait_for(lambda asked=asked: model.refuse(asked) == 404)  # type: ignore[misc]


def test_another_does_not_cancel_what_is_over(model: Model, fronts: tuple[Front, Front]) -> None:
    first, second = fronts
    _, number = model.begin(lambda: first.ask("POST", PATH, BODY, **KEY))
    model.end(number)
    late = second.ask("POST", f"{OWN}/cancel", **KEY)
    assert json.loads(late.data)["status"] == "completed"
    assert _state(second)["status"] == "completed"


VERBS = ("GET", ""), ("GET", "?stream=true"), ("DELETE", ""), ("POST", "/cancel")


def test_nobody_finds_what_another_deleted(model: Model, fronts: tuple[Front, Front]) -> None:
    first, second = fronts
    _, number = model.begin(lambda: first.ask("POST", PATH, BODY, **KEY))
    model.end(number)
    deleted = second.ask("DELETE", OWN, **KEY)
    assert json.loads(deleted.data) == {"id": ID, "object": "response", "deleted": True}
    wait_for(lambda: first.kept() == 0)
    # The engine, which may store it too, is not asked.
    for front in fronts:
        for method, more in VERBS:
            assert front.ask(method, OWN + more, **KEY).status == 404


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
def test_nobody_else_finds_it(model: Model, fronts: tuple[Front, Front], method: str) -> None:
    first, second = fronts
    _, number = model.begin(lambda: first.ask("POST", PATH, BODY, **KEY))
    model.end(number)
    path = OWN + "/cancel" * (method == "POST")
    for front in fronts:
        assert model.refuse(partial(front.ask, method, path, authorization="Bearer b")) == 404
    assert (first.kept(), second.kept()) == (1, 0)
    assert _state(second)["status"] == "completed"


def test_a_stream_that_is_kept_is_found_too(model: Model, fronts: tuple[Front, Front]) -> None:
    first, second = fronts
    body = STREAM.replace(b"true}", b"false}")
    asked = KEY | {WANTED: "1"}
    with ThreadPoolExecutor(2) as thread:
        answer, number = thread.submit(first.ask, "POST", PATH, body, **asked), model._next()
        model.say(number, "response.created", STARTED)
        wait_for(lambda: first.kept() == 1)
        rest = thread.submit(_get, second, "?stream=true&starting_after=0")
        # The connection to the first one is closed, without an end.
        assert not answer.result().has_end
        model.end(number)
        assert rest.result().data.count(b"event: ") == 2
    name = rest.result().data.partition(b"id: ")[2].partition(b".")[0].decode()
    # By the id of an event it is found as well, wherever it is.
    for front in fronts:
        back = front.ask("POST", PATH, body, **asked, **{LAST_ID: f"{name}.2"})
        assert (back.status, back.data.count(b"event: ")) == (200, 1)


def test_a_model_that_is_gone_keeps_nothing(
    model: Model, fronts: tuple[Front, Front], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found_responses, "_WAIT_SECONDS", 0.1)
    first, second = fronts
    model.begin(lambda: first.ask("POST", PATH, BODY, **KEY))
    model.endpoint.close()
    wait_for(lambda: not second.front_end.models.all())
    assert _get(second).status in (404, 503)


def test_a_model_that_a_new_front_end_does_not_know_yet_is_asked_too(
    model: Model, fronts: tuple[Front, Front]
) -> None:
    """It is so for a moment, after another model is known."""
    first, second = fronts
    _, number = model.begin(lambda: first.ask("POST", PATH, BODY, **KEY))
    models = second.front_end.models
    path, own = models._models.popitem()
    other: Any = SimpleNamespace(name="x", info=SimpleNamespace(resume_window=0), connection=None)
    models._models[Path("x")] = other
    with ThreadPoolExecutor(1) as thread:
        state = thread.submit(_get, second)
        wait_for(lambda: second.front_end._answering._found._coming)
        del models._models[Path("x")]
        models._models[path] = own
        assert state.result().status == 200
    model.end(number)
