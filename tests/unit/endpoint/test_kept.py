"""Answers that outlive their front end: on a real endpoint, whose front ends leave and come."""

import os
import socket
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from lmi_backend.endpoint import kept
from lmi_backend.endpoint.server import Endpoint
from lmi_backend.errors import EngineDeadError
from lmi_backend.generation import Continuation, Delta, GenerateRequest, HttpChunk, HttpRequest
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import FrameDecoder, encode, receive
from lmi_backend.ipc.kept_chunks import chunks_in
from lmi_backend.ipc.rejoining import (
    NOT_KEPT,
    Before,
    Cancelled,
    Find,
    Forget,
    Found,
    Keep,
    Moved,
    Named,
    Rejoin,
    Rejoined,
)
from lmi_backend.token_ids import pack
from tests.support.endpoints import open_endpoint, short_folder
from tests.support.idle_workers import IdleWorkers
from tests.support.waiting import HANG_SECONDS, wait_for

folder = pytest.fixture(short_folder)
EVENTS = {"content-type": "text/event-stream"}
CHAT = HttpRequest("/v1/chat/completions", b'{"stream": true}')
KEEP = Keep("name", "owner", 600)


class FrontEnd:
    """A front end, as the endpoint sees it."""

    opened: ClassVar[list["FrontEnd"]] = []

    def __init__(self, endpoint: Endpoint, pid: int = 1) -> None:
        self._endpoint = endpoint
        self._socket = socket.socket(socket.AF_UNIX)
        self.opened.append(self)
        self._socket.settimeout(HANG_SECONDS)
        self._socket.connect(str(endpoint._address))
        self._decoder: FrameDecoder[Any] = FrameDecoder(msg.ToClient, limit=1 << 24)
        self._messages: list[Any] = []
        self.send(msg.Hello(msg.PROTOCOL, pid, keeps_ids=True))
        assert isinstance(self.hear(), msg.Welcome)

    def send(self, message: Any) -> None:
        self._socket.sendall(encode([message]))

    def hear(self) -> Any:
        while not self._messages:
            self._messages += receive(self._socket, self._decoder)
        return self._messages.pop(0)

    def die(self) -> None:
        """Close the connection, as the kernel does for a process that is killed."""
        self.close()
        wait_for(lambda: not self._endpoint._clients)

    def close(self) -> None:
        self._socket.close()

    def rejoin(self, number: int = 5, name: str = "name", owner: str = "owner") -> Any:
        self.send(Rejoin(number, name, owner))
        return self.hear()

    def find(self, alias: str = "alias") -> Any:
        self.send(Find(alias))
        return self.hear()


@pytest.fixture
def endpoint(folder: Path) -> Iterator[Endpoint]:
    endpoint = open_endpoint("m", IdleWorkers())
    endpoint._service._cancellation.start()
    endpoint._service._senders.ready.start()
    yield endpoint
    for front in FrontEnd.opened:
        front.close()
    FrontEnd.opened.clear()
    endpoint.close()
    endpoint._service._cancellation.stop()
    endpoint._service._senders.ready.stop()


@pytest.fixture
def front(endpoint: Endpoint) -> FrontEnd:
    return FrontEnd(endpoint)


def _begin(endpoint: Endpoint, front: FrontEnd, keep: Keep | None = KEEP) -> int:
    """Begin a chat; return the service's number of it."""
    known = set(endpoint._service._states)
    front.send(msg.SubmitHttp(7, CHAT, "", keep))
    wait_for(lambda: len(endpoint._service._states) > len(known))
    (number,) = set(endpoint._service._states) - known
    return number


def _chunk(number: int, *, is_last: bool = False) -> HttpChunk:
    first = {} if number else EVENTS
    return HttpChunk(b"data: %d\n\n" % number, is_last, 200, first, 1, 3, pack([number]))


def _say(endpoint: Endpoint, request: int, *chunks: HttpChunk) -> None:
    endpoint._service.on_messages([msg.HttpOutput(request, chunk) for chunk in chunks])


def _chunks(rejoined: Rejoined) -> list[Any]:
    return [chunk for some in chunks_in(rejoined.blocks) for chunk in some]


def _open(endpoint: Endpoint) -> int:
    return endpoint._service.snapshot().open


def test_an_answer_goes_on_without_its_front_end(endpoint: Endpoint, front: FrontEnd) -> None:
    request = _begin(endpoint, front)
    _say(endpoint, request, *map(_chunk, range(3)))
    assert [front.hear().chunk for _ in range(3)] == [_chunk(each) for each in range(3)]
    front.die()
    # Events would travel in columns; these are kept all the same.
    columns = msg.Events([request] * 2, [b"data: 3\n\n", b"data: 4\n\n"], [pack([3]), pack([4])])
    endpoint._service.on_messages([columns])
    assert endpoint.kept.counts()["alone"] == 1
    back = FrontEnd(endpoint, 2)
    messages = back.rejoin()
    assert isinstance(messages, Rejoined)
    assert [chunk.data for chunk in _chunks(messages)] == [b"data: %d\n\n" % n for n in range(5)]
    assert b"".join(chunk.ids for chunk in _chunks(messages)) == b"".join(
        pack([n]) for n in range(5)
    )
    # What follows comes as it does in a new request, and its end too.
    _say(endpoint, request, _chunk(5), _chunk(6, is_last=True))
    assert [back.hear() for _ in range(2)] == [
        msg.HttpOutput(5, _chunk(5)),
        msg.HttpOutput(5, _chunk(6, is_last=True)),
    ]
    assert _open(endpoint) == 0
    # A whole answer is there until its front end says that its client has it.
    back.die()
    third = FrontEnd(endpoint, 3)
    assert len(_chunks(third.rejoin())) == 7
    third.send(Forget("name"))
    assert third.rejoin() == msg.Failure(5, "http", NOT_KEPT, status=404)
    assert endpoint.kept.counts() == {"kept": 0, "alone": 0, "bytes": 0, "rejoined": 2}


def test_who_does_not_own_it_gets_404(endpoint: Endpoint, front: FrontEnd) -> None:
    request = _begin(endpoint, front)
    _say(endpoint, request, _chunk(0))
    front.die()
    back = FrontEnd(endpoint)
    for name, owner in (("name", "other"), ("other", "owner"), ("name", ""), ("", "")):
        assert back.rejoin(name=name, owner=owner).status == 404
    assert isinstance(back.rejoin(), Rejoined)


def test_nothing_is_kept_after_the_window(endpoint: Endpoint, front: FrontEnd) -> None:
    running = _begin(endpoint, front, Keep("running", "owner", 0.2))
    whole = _begin(endpoint, front, Keep("whole", "owner", 0.2))
    _say(endpoint, running, _chunk(0))
    _say(endpoint, whole, _chunk(0), _chunk(1, is_last=True))
    front.die()
    wait_for(lambda: _open(endpoint) == 0)
    wait_for(lambda: endpoint.kept.counts()["kept"] == 0)
    assert endpoint.kept.counts()["bytes"] == 0
    back = FrontEnd(endpoint)
    assert {back.rejoin(name=name).status for name in ("running", "whole")} == {404}


@pytest.mark.parametrize(
    ("keep", "chunks"),
    [
        (None, [_chunk(0)]),
        # Its client has no event, and so no id.
        (KEEP, []),
        (KEEP, [HttpChunk(b"{", headers={"content-type": "application/json"})]),
    ],
)
def test_what_nobody_can_return_for_ends_with_its_front_end(
    endpoint: Endpoint, front: FrontEnd, keep: Keep | None, chunks: list[HttpChunk]
) -> None:
    request = _begin(endpoint, front, keep)
    _say(endpoint, request, *chunks)
    front.die()
    wait_for(lambda: _open(endpoint) == 0)
    assert endpoint.kept.counts()["kept"] == 0


def test_the_rest_of_an_answer_that_another_stub_began_is_not_kept(
    endpoint: Endpoint, front: FrontEnd
) -> None:
    where = Continuation(pack([1]), 2, b"data: 0\n\n")
    front.send(msg.SubmitHttp(7, HttpRequest(CHAT.path, CHAT.body, {}, where), "", KEEP))
    front.send(msg.Submit(8, (GenerateRequest("a", continuation=where),), "", KEEP))
    wait_for(lambda: _open(endpoint) == 2)
    assert endpoint.kept.counts()["kept"] == 0


def test_an_error_is_a_part_of_the_answer(endpoint: Endpoint, front: FrontEnd) -> None:
    front.send(msg.Submit(7, (GenerateRequest("a"),), "", KEEP))
    wait_for(lambda: _open(endpoint) == 1)
    (request,) = endpoint._service._states
    endpoint._service.on_messages([msg.Output(request, Delta("a", 1))])
    front.die()
    endpoint._service.on_death(0, EngineDeadError("it died"))
    endpoint._service.step()
    wait_for(lambda: _open(endpoint) == 0)
    back = FrontEnd(endpoint)
    assert [chunk.text for chunk in _chunks(back.rejoin())] == ["a"]
    message = back.hear()
    assert (message.id, message.kind) == (5, "dead")
    assert message.message.startswith("it died")


def test_a_front_end_that_is_there_loses_the_answer_to_another(
    endpoint: Endpoint, front: FrontEnd
) -> None:
    request = _begin(endpoint, front)
    _say(endpoint, request, _chunk(0))
    front.hear()
    other = FrontEnd(endpoint, 2)
    assert isinstance(other.rejoin(), Rejoined)
    message = front.hear()
    assert (message.id, message.kind) == (7, "moved")
    assert front.hear() == Moved("name")
    # Nor may it forget what it has no more, or abort it.
    front.send(Forget("name"))
    front.send(msg.Abort([7]))
    front.send(msg.AskHealth())
    front.hear()
    _say(endpoint, request, _chunk(1))
    assert other.hear() == msg.HttpOutput(5, _chunk(1))
    assert endpoint.kept.counts()["kept"] == 1


def test_what_a_front_end_cancels_is_not_kept(endpoint: Endpoint, front: FrontEnd) -> None:
    request = _begin(endpoint, front)
    _say(endpoint, request, _chunk(0))
    front.send(msg.Abort([7]))
    wait_for(lambda: _open(endpoint) == 0)
    assert endpoint.kept.counts()["kept"] == 0


@pytest.mark.parametrize("bound", ["KEPT_BYTES", "ALL_KEPT_BYTES"])
def test_what_is_kept_is_bounded(
    endpoint: Endpoint, front: FrontEnd, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(kept, bound, 100_000)
    request = _begin(endpoint, front)
    other = _begin(endpoint, front, Keep("other", "owner", 600))
    _say(endpoint, request, _chunk(0))
    _say(endpoint, other, _chunk(0))
    front.die()
    # Compressed, they take as much.
    parts = [HttpChunk(os.urandom(5000), num_tokens=1, ids=pack([1])) for _ in range(40)]
    for part in parts:
        _say(endpoint, other, part)
        assert endpoint.kept.counts()["bytes"] < 110_000
    # Nobody can return for it: it is not generated further.
    wait_for(lambda: other not in endpoint._service._states)
    back = FrontEnd(endpoint)
    assert back.rejoin(name="other").status == 404


def test_a_model_that_is_unloaded_keeps_nothing(endpoint: Endpoint, front: FrontEnd) -> None:
    request = _begin(endpoint, front)
    _say(endpoint, request, _chunk(0))
    endpoint.close()
    assert endpoint.kept.counts()["kept"] == 0
    wait_for(lambda: _open(endpoint) == 0)


def test_an_answer_is_found_by_its_alias(endpoint: Endpoint, front: FrontEnd) -> None:
    request = _begin(endpoint, front)
    other = FrontEnd(endpoint, 2)
    # Who does not have the answer cannot name it.
    other.send(Named("name", "alias"))
    assert other.find() == Found()
    front.send(Named("name", "alias"))
    # Nobody can know it before its first event.
    assert front.find() == Found()
    _say(endpoint, request, _chunk(0))
    front.hear()
    assert front.find() == Found(replace(KEEP, alias="alias"))
    front.close()
    wait_for(lambda: endpoint.kept.counts()["alone"] == 1)
    assert other.find() == Found(replace(KEEP, alias="alias"))
    assert other.find("") == Found()
    assert isinstance(other.rejoin(), Rejoined)
    other.send(Forget("name"))
    assert other.find() == Found()
    assert endpoint.kept._aliases == {}


def test_what_a_client_cancels_is_kept_as_it_is(endpoint: Endpoint, front: FrontEnd) -> None:
    request = _begin(endpoint, front)
    _say(endpoint, request, _chunk(0))
    front.send(Named("name", "alias"))
    front.send(Cancelled("name"))
    front.hear()
    assert front.find().is_cancelled
    # What comes until the worker knows is nobody's.
    _say(endpoint, request, _chunk(1))
    front.send(msg.Abort([7]))
    wait_for(lambda: _open(endpoint) == 0)
    front.die()
    back = FrontEnd(endpoint, 2)
    assert back.find() == Found(replace(KEEP, alias="alias"), is_cancelled=True)
    assert [chunk.data for chunk in _chunks(back.rejoin())] == [b"data: 0\n\n"]
    assert back.hear().kind == "cancelled"
    assert endpoint.kept.counts()["kept"] == 1


def test_what_is_over_is_not_cancelled(endpoint: Endpoint, front: FrontEnd) -> None:
    request = _begin(endpoint, front)
    front.send(Named("name", "alias"))
    _say(endpoint, request, _chunk(0), _chunk(1, is_last=True))
    front.send(Cancelled("name"))
    front.hear()
    front.hear()
    assert front.find() == Found(replace(KEEP, alias="alias"))


def test_the_time_of_a_lasting_one_begins_at_its_end(endpoint: Endpoint, front: FrontEnd) -> None:
    lasting = _begin(endpoint, front, Keep("lasting", "owner", 0.05, is_lasting=True))
    other = _begin(endpoint, front, Keep("other", "owner", 0.5))
    _say(endpoint, lasting, _chunk(0))
    _say(endpoint, other, _chunk(0))
    front.die()
    wait_for(lambda: endpoint.kept.counts()["kept"] == 1)
    assert list(endpoint.kept._kept) == ["lasting"]
    wait_for(lambda: _open(endpoint) == 1)
    _say(endpoint, lasting, _chunk(1, is_last=True))
    wait_for(lambda: endpoint.kept.counts()["kept"] == 0)
    assert _open(endpoint) == 0


def test_the_rest_of_an_answer_is_kept_with_what_came_before(
    endpoint: Endpoint, front: FrontEnd
) -> None:
    where = Continuation(pack([1]), 2, b"data: 0\n\n")
    events = [zlib.compress(b"data: 0")]
    before = Before(EVENTS, events, b"", where.ids, where.num_lines, where.head, 1, 3)
    work = HttpRequest(CHAT.path, CHAT.body, {}, where)
    front.send(msg.SubmitHttp(7, work, "", replace(KEEP, before=before)))
    wait_for(lambda: _open(endpoint) == 1)
    assert endpoint.kept.counts()["bytes"] > before.memory
    # It was known to its client before anything comes.
    front.die()
    wait_for(lambda: _open(endpoint) == 1)
    back = FrontEnd(endpoint, 2)
    (request,) = endpoint._service._states
    _say(endpoint, request, _chunk(1))
    rejoined = back.rejoin()
    assert rejoined.before == before
    assert [chunk.data for chunk in _chunks(rejoined)] == [b"data: 1\n\n"]
