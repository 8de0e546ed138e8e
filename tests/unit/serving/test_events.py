"""Events in columns come to what they would be one by one: at clients, in counts, in a move."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from lmi_backend.endpoint.connection import ClientConnection, ClientSink
from lmi_backend.generation import Delta, GenerateRequest, HttpChunk, HttpRequest, Token
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.events import append_event, outputs_of
from lmi_backend.ipc.frames import FrameDecoder
from lmi_backend.resume.progress import Progress
from lmi_backend.tokenization import pack, unpack
from tests.support.doubles.service_bench import Bench
from tests.support.servers.harness import RecordingSink

BODY = HttpRequest("/v1/chat/completions", b'{"stream": true}')
HEADERS = {"content-type": "text/event-stream"}
FRONT_END, ALIAS, TRITON = "the front end", "an alias model", "Triton"


class Client:
    """Asks twice, and keeps what it gets of each."""

    def __init__(self, kind: str, work: msg.Work = BODY) -> None:
        self.bench = Bench(2, capacity=8, migration_timeout=None)
        self._decoder: FrameDecoder[Any] = FrameDecoder(msg.ToClient, limit=1 << 20)
        self._messages: list[Any] = []
        self._connection = ClientConnection(self, None, None)  # type: ignore[arg-type]
        self._connection.keeps_ids = kind == FRONT_END
        is_tritons = kind == TRITON
        self.sinks: list[Any] = [
            RecordingSink() if is_tritons else ClientSink(self._connection, 10 + number)
            for number in (1, 2)
        ]
        for sink in self.sinks:
            self.bench.service.submit(work, sink)

    def setsockopt(self, *_: object) -> None: ...

    def sendmsg(self, frames: Sequence[bytes], *_: object) -> int:
        self._messages += self._decoder.feed(frames[0])
        return len(frames[0])

    def hear(self, messages: Sequence[Any], *, in_columns: bool) -> None:
        """Let the service have messages as they are, or each event of them by itself."""
        self.bench.service.on_messages([*messages] if in_columns else [*_apart(messages)])
        self.bench.send_answers()

    @property
    def messages(self) -> list[Any]:
        """All of answer 1, then all of answer 2."""
        return sorted(_apart(self._messages), key=lambda message: int(message.id))

    @property
    def has_columns(self) -> bool:
        return any(isinstance(each, msg.Events) for each in self._messages)


def _apart(messages: Sequence[Any]) -> Iterator[Any]:
    for message in messages:
        if isinstance(message, msg.Events):
            yield from outputs_of(message)
        else:
            yield message


def _event(*numbers: int) -> msg.Events:
    data = [b"data: %d\n\n" % number for number in numbers]
    return msg.Events([*numbers], data, [pack([5]) + pack([6])] * len(numbers))


def _first(number: int) -> Any:
    return msg.Output(number, HttpChunk(b"data: 0\n\n", False, 200, HEADERS, 1, 3, pack([4])))


def _last(number: int) -> Any:
    return msg.Output(number, HttpChunk(b"data: [DONE]\n\n", True, num_prompt_tokens=3))


def _delta(*ids: int, reason: Any = None) -> Delta:
    tokens = tuple(Token(each, f"{each} ", -0.5, 1) for each in ids)
    text, packed = "".join(each.text for each in tokens), b"".join(pack([each]) for each in ids)
    total = -0.5 * sum(ids)
    return Delta(text, len(ids), reason, None, 3, 0, tokens, (), total, None, packed)


def _deltas(*numbers: int) -> msg.Events:
    messages: list[Any] = []
    for number in numbers:
        append_event(messages, number, _delta(5, 6))
    (columns,) = messages
    assert isinstance(columns, msg.Deltas)
    return columns


CHATS = BODY, _first, _event, _last
GENERATED = (
    (GenerateRequest("a", logprobs=0),),
    lambda number: msg.Output(number, _delta(4)),
    _deltas,
    lambda number: msg.Output(number, Delta("[DONE]", 0, "stop", None, 3)),
)


@pytest.mark.parametrize(("work", "first", "event", "last"), [CHATS, GENERATED])
@pytest.mark.parametrize("kind", [FRONT_END, ALIAS, TRITON])
def test_each_client_gets_the_same(kind: str, work: Any, first: Any, event: Any, last: Any) -> None:
    clients = [Client(kind, work) for _ in range(2)]
    for client, in_columns in zip(clients, (True, False), strict=True):
        for step in (
            # One answer whose first chunk is an event, and one whose first is not.
            [first(1), event(1, 2)],
            [event(1, 2, 2), last(2)],
            # Nobody waits for 2 any more, or for 3.
            [event(2, 1, 3)],
            [last(1)],
        ):
            client.hear(step, in_columns=in_columns)
    ours, others = clients
    if kind == TRITON:
        assert [each.deltas for each in ours.sinks] == [each.deltas for each in others.sinks]
        assert "[DONE]" in str(ours.sinks[1].deltas[-1])
    else:
        assert ours.messages == others.messages
        assert [each.id for each in ours.messages].count(12) == 4
    assert ours.has_columns == (kind == FRONT_END)
    counted, expected = (client.bench.service.snapshot() for client in clients)
    assert (counted.responses, counted.generation_tokens) == (
        expected.responses,
        expected.generation_tokens,
    )
    assert counted.generation_tokens == 13
    assert counted.token_seconds.count == expected.token_seconds.count
    assert counted.ended == expected.ended == {"stop": 2}


@pytest.mark.parametrize("kind", [FRONT_END, ALIAS, TRITON])
def test_a_chat_goes_on_from_the_events_it_had(kind: str) -> None:
    client = Client(kind)
    client.hear([_first(1), _first(2), _event(1, 2, 1)], in_columns=True)
    workers = client.bench.workers
    client.bench.die()
    (moved,) = [number for number in workers.requests[1] if number > 2]
    where = workers.sent[moved].request.continuation
    assert unpack(where.ids) == [[4], [5], [6], [5], [6]]
    assert (where.num_lines, where.head) == (6, b"data: 0\n\n")
    # The old id is nobody's, and the new one resumes with an event.
    client.hear([_event(1, moved)], in_columns=True)
    workers.die(1)
    client.bench.revive()
    (moved,) = [
        number
        for number in workers.requests[0]
        if workers.sent[number].request.continuation.num_lines == 8
    ]
    assert len(unpack(workers.sent[moved].request.continuation.ids)) == 7


@pytest.mark.parametrize("kind", [FRONT_END, ALIAS, TRITON])
def test_a_generated_answer_goes_on_from_its_ids_and_its_sum(kind: str) -> None:
    work, first, event, _ = GENERATED
    client = Client(kind, work)
    client.hear([first(1), first(2), event(1)], in_columns=True)
    workers = client.bench.workers
    for worker, ids, total in ((0, [[4], [5], [6]], -5.5), (1, [[4], [5], [6], [7]], -3.5)):
        client.bench.die(worker)
        resumed = {
            number: where
            for number in workers.requests[1 - worker]
            if (where := workers.sent[number].requests[0].continuation) is not None
        }
        moved, where = max(resumed.items(), key=lambda pair: len(pair[1].ids))
        assert (unpack(where.ids), where.cumulative_logprob) == (ids, total)
        assert (where.num_lines, where.head) == (0, b"")
        # Columns and a message of its own, in turn: the later one counts.
        client.hear([msg.Output(moved, _delta(7))], in_columns=True)
        workers.revive(worker)


def test_data_that_are_no_delta_fail_one_request(caplog: pytest.LogCaptureFixture) -> None:
    work, first, event, last = GENERATED
    client = Client(ALIAS, work)
    columns = event(1, 2)
    columns.data[0] = b"\xc1"
    client.hear([first(1), first(2)], in_columns=True)
    client.hear([columns, last(2)], in_columns=True)
    assert client.bench.service.snapshot().ended == {"internal": 1, "stop": 1}
    assert "DecodeError" in caplog.text


def test_who_has_left_gets_nothing() -> None:
    client = Client(FRONT_END)
    client.hear([_first(1), _first(2)], in_columns=True)
    client.sinks[0].is_gone = True
    client.bench.service.cancellation.look_at(client.bench.service.open_states())
    client.hear([_event(1, 2)], in_columns=True)
    sent = [(each.id, type(each)) for each in client.messages]
    assert sent == [(11, msg.Output)] + [(12, msg.Output)] * 2


@pytest.mark.parametrize(
    ("kind", "owner", "name"),
    [
        (FRONT_END, Progress, "pass_event"),
        (FRONT_END, ClientSink, "store"),
        (ALIAS, Progress, "add"),
        (ALIAS, ClientSink, "store"),
        (TRITON, Progress, "add"),
        (TRITON, RecordingSink, "send"),
    ],
)
def test_what_cannot_be_handed_on_is_one_requests_failure(
    kind: str,
    owner: type,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = Client(kind)
    client.hear([_first(1), _first(2)], in_columns=True)
    states = dict(client.bench.service.states)
    bad, kept = (states[1].progress, states[1].sink), getattr(owner, name)

    def fail_one(each: Any, *arguments: Any, **words: Any) -> Any:
        if each in bad:
            raise TypeError("a bug")
        return kept(each, *arguments, **words)

    monkeypatch.setattr(owner, name, fail_one)
    client.hear([_event(1, 2), _event(2, 1)], in_columns=(kind, name) != (FRONT_END, "store"))
    client.hear([_last(2)], in_columns=True)
    assert client.bench.service.snapshot().open == 0
    assert "TypeError: a bug" in caplog.text
    assert caplog.text.count("Traceback") == 1
    counts = client.bench.service.snapshot().ended
    assert counts["stop"] == 1
    assert sum(counts.values()) == 2
    if kind != TRITON:
        ends = [each for each in client.messages if isinstance(each, msg.Failure)]
        assert [(each.id, each.kind) for each in ends] == [(11, "engine")]
    assert states[2].num_sent == (3 if kind == TRITON else 4)
