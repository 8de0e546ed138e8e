"""Answers whose clients leave and come back: on a real endpoint, as its front ends see it."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from lmi_backend.endpoint import buffered
from lmi_backend.endpoint.server import Endpoint
from lmi_backend.errors import EngineDeadError
from lmi_backend.generation import Continuation, Delta, GenerateRequest, HttpChunk, HttpRequest
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.chunk_log import block_of, parts_in
from lmi_backend.ipc.messages import NOT_BUFFERED
from lmi_backend.serving.request_state import RequestState
from lmi_backend.tokenization import pack
from tests.support.doubles.endpoints import EndpointClient, open_endpoint, short_folder
from tests.support.doubles.idle_workers import IdleWorkers
from tests.support.run.waiting import wait_for

folder = pytest.fixture(short_folder)
EVENTS = {"content-type": "text/event-stream"}
CHAT = HttpRequest("/v1/chat/completions", b'{"stream": true}')
ORDER = msg.Buffering("name", "owner", 600)
RESPONSE = replace(ORDER, key="key")
CREATED = b'data: {"type":"response.created","response":{"tools":[],"id":"resp"}}\n\n'


class FrontEnd(EndpointClient):
    """A front end, as the endpoint sees it."""

    opened: ClassVar[list["FrontEnd"]] = []

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint, keeps_ids=True)
        self.opened.append(self)

    def die(self) -> None:
        """Close the connection, as the kernel does for a process that is killed."""
        self.close()
        wait_for(lambda: not self.endpoint.clients)

    def leave(self, number: int = 7, *, returns: bool = True) -> None:
        """Say that a client has left, and wait until that is known."""
        self.send(msg.Left(number, returns))
        self.send(msg.AskHealth())
        while not isinstance(message := self.hear(), msg.Health):
            self.heard = message

    def rejoin(self, number: int = 5, name: str = "name", owner: str = "owner") -> Any:
        self.send(msg.Rejoin(number, name, owner))
        return self.hear()

    def find(self, key: str = "key", name: str = "resp", verb: Any = "read") -> Any:
        self.send(msg.Find(key, name, verb))
        return self.hear()


@pytest.fixture
def endpoint(folder: Path) -> Iterator[Endpoint]:
    endpoint = open_endpoint("m", IdleWorkers())
    endpoint.service.cancellation.start()
    endpoint.service.senders.start()
    yield endpoint
    for front in FrontEnd.opened:
        front.close()
    FrontEnd.opened.clear()
    endpoint.close()
    endpoint.service.cancellation.stop()
    endpoint.service.senders.stop()


@pytest.fixture
def front(endpoint: Endpoint) -> FrontEnd:
    return FrontEnd(endpoint)


def _begin(
    endpoint: Endpoint, front: FrontEnd, order: msg.Buffering | None = ORDER, number: int = 7
) -> int:
    """Begin a chat; return the service's number of it."""
    known = set(endpoint.service.states)
    front.send(msg.SubmitHttp(number, CHAT, "", order))
    wait_for(lambda: len(endpoint.service.states) > len(known))
    (request,) = set(endpoint.service.states) - known
    return request


def _chunk(number: int, *, is_last: bool = False) -> HttpChunk:
    first = {} if number else EVENTS
    return HttpChunk(b"data: %d\n\n" % number, is_last, 200, first, 1, 3, pack([number]))


def _say(endpoint: Endpoint, request: int, *chunks: HttpChunk) -> None:
    endpoint.service.on_messages([msg.Output(request, chunk) for chunk in chunks])


def _chunks(rejoined: msg.Rejoined) -> list[Any]:
    return [part.chunk for block in rejoined.blocks for part in parts_in(block)]  # type: ignore[union-attr]


def _open(endpoint: Endpoint) -> int:
    return endpoint.service.snapshot().open


def test_an_answer_goes_on_without_its_front_end(endpoint: Endpoint, front: FrontEnd) -> None:
    request = _begin(endpoint, front)
    _say(endpoint, request, *map(_chunk, range(3)))
    assert [front.hear().chunk for _ in range(3)] == [_chunk(each) for each in range(3)]
    front.die()
    # Events would travel in columns; these are kept all the same.
    columns = msg.Events([request] * 2, [b"data: 3\n\n", b"data: 4\n\n"], [pack([3]), pack([4])])
    endpoint.service.on_messages([columns])
    assert endpoint.buffered.counts()["alone"] == 1
    back = FrontEnd(endpoint)
    messages = back.rejoin()
    assert isinstance(messages, msg.Rejoined)
    assert [chunk.data for chunk in _chunks(messages)] == [b"data: %d\n\n" % n for n in range(5)]
    assert b"".join(chunk.ids for chunk in _chunks(messages)) == b"".join(
        pack([n]) for n in range(5)
    )
    # What follows comes as it does in a new request, and its end too.
    _say(endpoint, request, _chunk(5), _chunk(6, is_last=True))
    assert [back.hear() for _ in range(2)] == [
        msg.Output(5, _chunk(5)),
        msg.Output(5, _chunk(6, is_last=True)),
    ]
    assert _open(endpoint) == 0
    # A whole answer is there until its client says that it does not return.
    back.die()
    third = FrontEnd(endpoint)
    assert len(_chunks(third.rejoin())) == 7
    third.leave(5, returns=False)
    assert third.heard == msg.Ended(5)
    assert third.rejoin() == msg.Failure(5, "http", NOT_BUFFERED, status=404)
    assert endpoint.buffered.counts() == {
        "answers": 0, "alone": 0, "bytes": 0, "reconnections": 2, "lapsed": 0,
    }  # fmt: skip


def test_an_answer_that_is_over_does_not_hold_its_request(
    endpoint: Endpoint, front: FrontEnd
) -> None:
    """A prompt of a million tokens may have an answer of one."""
    request = _begin(endpoint, front)
    # Once it has started this decides nothing, and no other request has it.
    endpoint.service.states[request].priority = mark = 987_654_321
    _say(endpoint, request, _chunk(0), _chunk(1, is_last=True))
    wait_for(
        lambda: (
            not any(
                isinstance(each, RequestState) and each.priority == mark
                for each in gc.get_objects()
            )
        )
    )
    assert endpoint.buffered.counts()["answers"] == 1


def test_an_answer_goes_on_without_its_client(endpoint: Endpoint, front: FrontEnd) -> None:
    """The front end is told of its end, and how much came meanwhile."""
    request = _begin(endpoint, front)
    _say(endpoint, request, _chunk(0))
    front.hear()
    front.leave()
    _say(endpoint, request, _chunk(1), _chunk(2))
    assert isinstance(front.rejoin(8), msg.Ended)
    assert len(_chunks(front.hear())) == 3
    front.leave(8)
    _say(endpoint, request, _chunk(3), _chunk(4, is_last=True))
    assert front.hear() == msg.Ended(8, 2)
    # Of one that is over it is told at once.
    assert len(_chunks(front.rejoin(9))) == 5
    front.leave(9)
    assert front.heard == msg.Ended(9)
    # And when it is deleted.
    running = _begin(endpoint, front, replace(ORDER, name="late", seconds=0.1), 10)
    _say(endpoint, running, _chunk(0))
    front.hear()
    front.leave(10)
    assert front.hear() == msg.Ended(10)
    wait_for(lambda: _open(endpoint) == 0)
    assert endpoint.buffered.counts()["lapsed"] == 1


def test_who_does_not_own_it_gets_404(endpoint: Endpoint, front: FrontEnd) -> None:
    request = _begin(endpoint, front)
    _say(endpoint, request, _chunk(0))
    front.die()
    back = FrontEnd(endpoint)
    for name, owner in (("name", "other"), ("other", "owner"), ("name", ""), ("", "")):
        assert back.rejoin(name=name, owner=owner).status == 404
    assert isinstance(back.rejoin(), msg.Rejoined)


@pytest.mark.parametrize(
    ("order", "chunks"),
    [
        (None, [_chunk(0)]),
        # Its client has no event, and so no id.
        (ORDER, []),
        (ORDER, [HttpChunk(b"{", headers={"content-type": "application/json"})]),
    ],
)
def test_what_nobody_can_return_for_ends_with_its_front_end(
    endpoint: Endpoint, front: FrontEnd, order: msg.Buffering | None, chunks: list[HttpChunk]
) -> None:
    request = _begin(endpoint, front, order)
    _say(endpoint, request, *chunks)
    front.die()
    wait_for(lambda: _open(endpoint) == 0)
    assert endpoint.buffered.counts()["answers"] == 0


def test_the_rest_of_an_answer_that_another_stub_began_is_not_buffered(
    endpoint: Endpoint, front: FrontEnd
) -> None:
    where = Continuation(pack([1]), 2, b"data: 0\n\n")
    front.send(msg.SubmitHttp(7, HttpRequest(CHAT.path, CHAT.body, {}, where), "", ORDER))
    front.send(msg.Submit(8, (GenerateRequest("a", continuation=where),), "", ORDER))
    wait_for(lambda: _open(endpoint) == 2)
    assert endpoint.buffered.counts()["answers"] == 0
    # Its client cannot come back.
    for number in (7, 8):
        front.leave(number)
        assert front.heard == msg.Ended(number)
    wait_for(lambda: _open(endpoint) == 0)


def test_an_error_is_a_part_of_the_answer(endpoint: Endpoint, front: FrontEnd) -> None:
    front.send(msg.Submit(7, (GenerateRequest("a"),), "", ORDER))
    wait_for(lambda: _open(endpoint) == 1)
    (request,) = endpoint.service.states
    endpoint.service.on_messages([msg.Output(request, Delta("a", 1))])
    front.die()
    endpoint.service.on_death(0, EngineDeadError("it died"))
    wait_for(lambda: _open(endpoint) == 0)
    back = FrontEnd(endpoint)
    (block,) = back.rejoin().blocks
    output, failure = parts_in(block)
    assert output.chunk.text == "a"  # type: ignore[union-attr]
    assert isinstance(failure, msg.Failure)
    assert (failure.kind, failure.message[:7]) == ("dead", "it died")


def test_a_front_end_that_is_there_loses_the_answer_to_another(
    endpoint: Endpoint, front: FrontEnd
) -> None:
    request = _begin(endpoint, front)
    _say(endpoint, request, _chunk(0))
    front.hear()
    other = FrontEnd(endpoint)
    assert isinstance(other.rejoin(), msg.Rejoined)
    message = front.hear()
    assert (message.id, message.kind) == (7, "moved")
    # Nor may it end what it has no more.
    front.send(msg.Abort([7]))
    front.leave(returns=False)
    _say(endpoint, request, _chunk(1))
    assert other.hear() == msg.Output(5, _chunk(1))
    assert endpoint.buffered.counts()["answers"] == 1


def test_what_a_front_end_aborts_is_not_buffered(endpoint: Endpoint, front: FrontEnd) -> None:
    request = _begin(endpoint, front)
    _say(endpoint, request, _chunk(0))
    front.send(msg.Abort([7]))
    wait_for(lambda: _open(endpoint) == 0)
    assert endpoint.buffered.counts()["answers"] == 0


@pytest.mark.parametrize("bound", ["BUFFERED_BYTES", "ALL_BUFFERED_BYTES"])
def test_what_is_buffered_is_bounded(
    endpoint: Endpoint, front: FrontEnd, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(buffered, bound, 100_000)
    request = _begin(endpoint, front)
    other = _begin(endpoint, front, msg.Buffering("other", "owner", 600), 8)
    _say(endpoint, request, _chunk(0))
    _say(endpoint, other, _chunk(0))
    front.die()
    # Compressed, they take as much.
    parts = [HttpChunk(os.urandom(5000), num_tokens=1, ids=pack([1])) for _ in range(40)]
    for part in parts:
        _say(endpoint, other, part)
        assert endpoint.buffered.counts()["bytes"] < 110_000
    # Nobody can return for it: it is not generated further.
    wait_for(lambda: other not in endpoint.service.states)
    back = FrontEnd(endpoint)
    assert back.rejoin(name="other").status == 404


def test_a_model_that_is_unloaded_buffers_nothing(endpoint: Endpoint, front: FrontEnd) -> None:
    request = _begin(endpoint, front)
    _say(endpoint, request, _chunk(0))
    endpoint.close()
    assert endpoint.buffered.counts()["answers"] == 0
    wait_for(lambda: _open(endpoint) == 0)


def test_a_key_of_many_answers_costs_no_other_key_its_own(
    endpoint: Endpoint, front: FrontEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffered, "ALL_BUFFERED_BYTES", 60_000)
    part = HttpChunk(os.urandom(8000), num_tokens=1)
    for number, tenant in enumerate(["one", *["other"] * 12]):
        order = replace(ORDER, name=f"name {number}")
        front.send(msg.SubmitHttp(number, CHAT, tenant, order))
        wait_for(lambda: _open(endpoint) == 1)
        (request,) = endpoint.service.states
        _say(endpoint, request, _chunk(0), part, _chunk(1, is_last=True))
        wait_for(lambda: _open(endpoint) == 0)
    back = FrontEnd(endpoint)
    assert isinstance(back.rejoin(name="name 0"), msg.Rejoined)
    assert back.rejoin(name="name 1").status == 404


def _response(number: int, *, is_last: bool = False) -> HttpChunk:
    """Return what comes of a response: its id comes after its beginning."""
    data = (b"", CREATED, b"data: {}\n\n", b'data: {"done":1}\n\n')[number]
    return HttpChunk(data, is_last, 200, {} if number else EVENTS, 1)


def _ends(found: msg.Found) -> list[bytes]:
    return [part.chunk.data for block in found.blocks for part in parts_in(block)]  # type: ignore[union-attr]


def test_a_response_is_found_by_its_id_and_key(endpoint: Endpoint, front: FrontEnd) -> None:
    request = _begin(endpoint, front, RESPONSE)
    _say(endpoint, request, _response(0))
    # Nobody can know it before its first event.
    assert isinstance(front.hear(), msg.Output)
    assert front.find() == msg.Found()
    _say(endpoint, request, _response(1))
    front.hear()
    found = front.find()
    assert (found.state, found.buffering, _ends(found)) == ("running", RESPONSE, [b"", CREATED])
    front.close()
    wait_for(lambda: endpoint.buffered.counts()["alone"] == 1)
    other = FrontEnd(endpoint)
    assert other.find().state == "running"
    for name in (("key", ""), ("", "resp"), ("other", "resp"), ("key", "other")):
        assert other.find(*name) == msg.Found()
    for _ in range(40):
        _say(endpoint, request, HttpChunk(os.urandom(1000)))
    _say(endpoint, request, _response(2), _response(3, is_last=True))
    # Its beginning and its end.
    found = other.find()
    assert (found.state, len(found.blocks)) == ("over", 2)
    assert (_ends(found)[:2], _ends(found)[-1]) == ([b"", CREATED], _response(3).data)
    # What is over is not cancelled; without a client that stays it is deleted.
    assert other.find(verb="cancel").state == "over"
    assert other.find() == msg.Found()
    assert endpoint.buffered.responses == {}


def test_what_a_client_cancels_is_buffered_as_it_is(endpoint: Endpoint, front: FrontEnd) -> None:
    request = _begin(endpoint, front, replace(RESPONSE, is_lasting=True))
    _say(endpoint, request, _response(0), _response(1))
    assert [front.hear().chunk for _ in range(2)] == [_response(0), _response(1)]
    other = FrontEnd(endpoint)
    assert other.find(verb="cancel").state == "cancelled"
    # Who reads it gets its end; what comes until the worker knows is nobody's.
    assert front.hear().chunk == HttpChunk(is_last=True)
    _say(endpoint, request, _response(2))
    wait_for(lambda: _open(endpoint) == 0)
    front.close()
    wait_for(lambda: endpoint.buffered.counts()["alone"] == 1)
    back = FrontEnd(endpoint)
    found = back.find(verb="cancel")
    assert (found.state, _ends(found)) == ("cancelled", [b"", CREATED, b""])
    assert [chunk.data for chunk in _chunks(back.rejoin())] == [b"", CREATED, b""]
    assert endpoint.buffered.counts()["answers"] == 1


@pytest.mark.parametrize("is_lasting", [False, True])
def test_what_a_client_deletes_is_found_no_more(
    endpoint: Endpoint, front: FrontEnd, *, is_lasting: bool
) -> None:
    request = _begin(endpoint, front, replace(RESPONSE, is_lasting=is_lasting))
    _say(endpoint, request, _response(0), _response(1))
    assert [front.hear().chunk for _ in range(2)] == [_response(0), _response(1)]
    assert FrontEnd(endpoint).find(verb="delete").state == "running"
    assert front.hear().kind == "cancelled"
    wait_for(lambda: _open(endpoint) == 0)
    for verb in ("read", "cancel", "delete"):
        assert front.find(verb=verb) == msg.Found("deleted")
    assert endpoint.buffered.counts()["answers"] == 0


@pytest.mark.parametrize("data", [b"data: {response.created", b'data: {"response.created":1}'])
def test_an_odd_beginning_has_no_id(endpoint: Endpoint, front: FrontEnd, data: bytes) -> None:
    request = _begin(endpoint, front, RESPONSE)
    _say(endpoint, request, HttpChunk(data, headers=EVENTS))
    front.hear()
    assert endpoint.buffered.responses == {}


def test_the_time_of_a_lasting_one_begins_at_its_end(endpoint: Endpoint, front: FrontEnd) -> None:
    lasting = _begin(endpoint, front, msg.Buffering("lasting", "owner", 0.05, is_lasting=True))
    other = _begin(endpoint, front, msg.Buffering("other", "owner", 0.5), 8)
    _say(endpoint, lasting, _chunk(0))
    _say(endpoint, other, _chunk(0))
    whole = _begin(endpoint, front, msg.Buffering("whole", "owner", 0.5), 9)
    _say(endpoint, whole, _chunk(0), _chunk(1, is_last=True))
    front.die()
    wait_for(lambda: endpoint.buffered.counts()["answers"] == 1)
    assert list(endpoint.buffered.answers) == ["lasting"]
    back = FrontEnd(endpoint)
    assert {back.rejoin(name=name).status for name in ("other", "whole")} == {404}
    wait_for(lambda: _open(endpoint) == 1)
    _say(endpoint, lasting, _chunk(1, is_last=True))
    wait_for(lambda: endpoint.buffered.counts()["answers"] == 0)
    assert _open(endpoint) == 0


def test_the_rest_of_an_answer_is_buffered_with_what_came_before(
    endpoint: Endpoint, front: FrontEnd
) -> None:
    where = Continuation(pack([1]), 2, b"data: 0\n\n")
    before = HttpChunk(headers=EVENTS)
    work = HttpRequest(CHAT.path, CHAT.body, {}, where)
    order = replace(ORDER, num_events=3, block=block_of(before))
    front.send(msg.SubmitHttp(7, work, "", order))
    wait_for(lambda: _open(endpoint) == 1)
    # It was known to its client before anything comes.
    front.die()
    wait_for(lambda: endpoint.buffered.counts()["alone"] == 1)
    back = FrontEnd(endpoint)
    (request,) = endpoint.service.states
    _say(endpoint, request, _chunk(1))
    rejoined = back.rejoin()
    assert (rejoined.num_events, rejoined.where) == (3, where)
    assert _chunks(rejoined) == [before, _chunk(1)]
