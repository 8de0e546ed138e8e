"""What a token costs, counted, not timed: function calls, frames, responses and tensors.

The bounds are what was counted on CPython 3.11 and 3.12, and a tenth more. A change that costs
more must say so here; benchmarks/README.md says what such counts mean in microseconds.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from lmi_backend.clients.lmi import form_of, read_lmi
from lmi_backend.clients.openai import HttpForm, openai_failure
from lmi_backend.clients.spec import Form
from lmi_backend.clients.vllm import VllmReply
from lmi_backend.endpoint.connection import ClientConnection, ClientSink
from lmi_backend.engine_config import Context, ModelInfo
from lmi_backend.engines.bodies import BodyBounds, check_body
from lmi_backend.frontend.answer import send_answer
from lmi_backend.frontend.connection import ModelConnection
from lmi_backend.frontend.http.exchange import Exchange
from lmi_backend.frontend.http.protocol import CLIENT, Client
from lmi_backend.generation import Chunk, Delta, GenerateRequest, HttpChunk, HttpRequest, Token
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.events import append_event, is_event
from lmi_backend.ipc.flush_policy import FlushPolicy
from lmi_backend.ipc.frames import FrameDecoder, encode
from lmi_backend.repository.variants import MAIN
from lmi_backend.serving.service import Service
from lmi_backend.tokenization import pack
from lmi_backend.worker.coalescer import Coalescer
from lmi_backend.worker.outgoing import Outgoing
from tests.support.doubles.idle_workers import IdleWorkers
from tests.support.doubles.scripted_workers import ScriptedWorkers
from tests.support.doubles.service_bench import Sink, limits_of
from tests.support.doubles.triton_double import beside_the_double
from tests.support.run.waiting import turns

STREAMS = 64
STEPS = 60
MARGIN = 1.1
PROMPT = (GenerateRequest("x"),)
EVENT_IN_STUB, EVENT_IN_FRONT_END, LMI_EVENT = 11.0, 11.4, 20.4
"""Calls of functions that an event of a chat costs."""
CHOICE = 106
"""Calls that the choice among four workers costs more than fewest answers, for a chat of eight
messages: about 15 microseconds."""
BODY_CHECK = 270
"""Calls that a look at the members of a plain chat costs, however many members there may be."""


class Calls:
    """Counts calls of functions, Python's and C's, of this thread."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _see(self, frame: Any, event: str, argument: Any) -> None:
        self.count += event in ("call", "c_call")


def _delta(step: int) -> Delta:
    return Delta("word ", 1, "length" if step == STEPS - 1 else None, num_prompt_tokens=5)


def _token(step: int) -> Delta:
    """Return a token of a generated answer, with its log probability."""
    tokens = (Token(7 + step, "word ", -0.5, 1),)
    return replace(_delta(step), tokens=tokens, cumulative_logprob=-0.5, ids=pack([7 + step]))


def _chunk(step: int) -> HttpChunk:
    """Return an event of a chat, as a worker sends it."""
    data = b'data: {"choices": [{"delta": {"content": "word "}}]}\n\n'
    headers = {} if step else {"content-type": "text/event-stream"}
    return HttpChunk(data, step == STEPS - 1, 200, headers, 1, 5, pack([7 + step]))


@pytest.mark.parametrize(
    ("make", "together", "calls_a_token", "frames_a_step"),
    [
        pytest.param(_delta, 1, 6.5, 1, id="each token alone"),
        pytest.param(_delta, 10, 6.0, 0.12, id="ten together"),
        pytest.param(_chunk, 1, 9.6, 1, id="an event of a chat"),
        pytest.param(_token, 1, 11.6, 1, id="a token with its log probability"),
    ],
)
async def test_what_a_token_costs_the_worker(
    make: Callable[[int], Chunk], together: int, calls_a_token: float, frames_a_step: float
) -> None:
    frames: list[bytes] = []
    outgoing = Outgoing(frames.append, lambda: 0, on_refused=lambda request_id: None)
    coalescer = Coalescer(outgoing)
    # No clock: where tokens wait for each other, the test ticks.
    coalescer.set_flush_policy(FlushPolicy(flush_seconds=0 if together == 1 else 1e9))
    for number in range(STREAMS):
        coalescer.open(number)
    calls = Calls()
    for step in range(STEPS):
        chunks = [make(step) for _ in range(STREAMS)]
        with calls.counted():
            for number, chunk in enumerate(chunks):
                coalescer.add(number, chunk)
            if together > 1 and step % together == 0:
                coalescer.tick()
            outgoing.flush()
        await asyncio.sleep(0)
    assert len(frames) <= frames_a_step * STEPS + 1
    assert calls.count / (STREAMS * STEPS) <= calls_a_token * MARGIN


async def test_streams_without_new_tokens_cost_the_tick_of_others_nothing() -> None:
    outgoing = Outgoing(lambda frame: None, lambda: 0, on_refused=lambda request_id: None)
    coalescer = Coalescer(outgoing)
    coalescer.set_flush_policy(FlushPolicy(flush_seconds=1e9))
    for number in range(STREAMS):
        coalescer.open(number)
        coalescer.add(number, _delta(0))
    coalescer.add(0, _delta(1))
    coalescer.tick()
    calls = Calls()
    coalescer.add(0, _delta(2))
    with calls.counted():
        coalescer.tick()
    assert calls.count < STREAMS


def test_what_the_choice_of_a_worker_costs_the_stub() -> None:
    messages = [{"role": "user", "content": f"{number} " * 50} for number in range(8)]
    chat = HttpRequest("/v1/chat/completions", json.dumps({"messages": messages}).encode())
    counts = []
    for threshold in (0, 8):
        workers = ScriptedWorkers(STREAMS, 4)
        limits = limits_of(STREAMS * 4, 0, concurrency_threshold=threshold)
        service = Service(workers, limits)  # type: ignore[arg-type]
        calls = Calls()
        for _ in range(2):
            calls.count = 0
            with calls.counted():
                service.submit(chat, Sink())
        counts.append(calls.count)
    assert counts[1] - counts[0] <= CHOICE * MARGIN, counts


def test_what_a_look_at_a_body_costs_the_worker() -> None:
    asked = {"model": "m", "stream": True, "max_tokens": 64, "temperature": 0, "seed": 1}
    body = json.dumps({"messages": [{"role": "user", "content": "Count."}], **asked}).encode()
    bounds = BodyBounds(max_model_len=1024, longest=20, reads={BODY.path: {"messages", *asked}})
    check_body(body, bounds, BODY.path)
    calls = Calls()
    with calls.counted():
        check_body(body, bounds, BODY.path)
    assert calls.count <= BODY_CHECK * MARGIN


class Sender:
    """Counts what Triton would get."""

    responses = 0
    tensors = 0

    def send(self, response: Any, flags: int) -> None:
        Sender.responses += 1
        Sender.tensors += len(response.output_tensors)


@pytest.fixture
def make_sink() -> Iterator[Callable[[], Any]]:
    Sender.responses = Sender.tensors = 0
    request = SimpleNamespace(get_response_sender=Sender, request_id=lambda: "")
    reply = VllmReply(1, stream=True, prefix="", outputs=frozenset())
    with beside_the_double("codec", "sink") as (codec, sink):
        made = codec.Codec(MAIN)
        yield lambda: sink.TritonSink(request, reply, made, is_decoupled=True)


def test_what_a_response_costs_the_stub(make_sink: Callable[[], Any]) -> None:
    service = Service(IdleWorkers(), limits_of(STREAMS, 0))  # type: ignore[arg-type]
    for _ in range(STREAMS):
        service.submit(PROMPT, make_sink())
    decoder: FrameDecoder[Any] = FrameDecoder(msg.FromWorker, limit=1 << 24)
    calls = Calls()
    for step in range(STEPS):
        frame = encode([msg.Output(number + 1, _delta(step)) for number in range(STREAMS)])
        with calls.counted():
            service.on_messages(decoder.feed(frame))
        with calls.counted():
            service.senders.step()
    assert Sender.responses == STREAMS * STEPS
    # No response without text, none with an output nobody asked for.
    assert Sender.tensors == Sender.responses
    assert calls.count / Sender.responses <= 44.0 * MARGIN


def test_tokens_that_came_meanwhile_share_a_response(make_sink: Callable[[], Any]) -> None:
    service = Service(IdleWorkers(), limits_of(STREAMS, 0))  # type: ignore[arg-type]
    for _ in range(STREAMS):
        service.submit(PROMPT, make_sink())
    for step in range(STEPS):
        service.on_messages([msg.Output(number + 1, _delta(step)) for number in range(STREAMS)])
    service.senders.step()
    assert Sender.responses == STREAMS


class Transport:
    """What is written to a client, or to a model."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return False

    def setsockopt(self, *_: object) -> None: ...

    def sendmsg(self, frames: Sequence[bytes], *_: object) -> int:
        self.written += frames
        return sum(map(len, frames))


BODY = HttpRequest("/v1/chat/completions", b'{"stream": true}')


def _frame(step: int, make: Callable[[int], Chunk] = _chunk) -> bytes:
    """Return what a worker sends of a step."""
    messages: list[Any] = []
    for number in range(STREAMS):
        chunk = make(step)
        if is_event(chunk):
            append_event(messages, number + 1, chunk)
        else:
            messages.append(msg.Output(number + 1, chunk))
    return encode(messages)


TOKENS = partial(_frame, make=_token)


@pytest.mark.parametrize(
    ("work", "frame"),
    [pytest.param(BODY, _frame, id="a chat"), pytest.param(PROMPT, TOKENS, id="LMI's lines")],
)
def test_what_an_event_costs_the_stub_on_its_way_to_the_front_end(
    work: msg.Work, frame: Callable[[int], bytes]
) -> None:
    limits = limits_of(STREAMS, 0, migration_timeout=None)
    service = Service(IdleWorkers(), limits)  # type: ignore[arg-type]
    socket = Transport()
    client = ClientConnection(socket, None, None)  # type: ignore[arg-type]
    client.keeps_ids = True
    for number in range(STREAMS):
        service.submit(work, ClientSink(client, number + 1))
    decoder: FrameDecoder[Any] = FrameDecoder(msg.FromWorker, limit=1 << 24)
    calls = Calls()
    for step in range(STEPS):
        data = frame(step)
        with calls.counted():
            service.on_messages(decoder.feed(data))
    # One for each step, from the thread that brought it.
    assert socket.written[1:-1] == [frame(step) for step in range(1, STEPS - 1)]
    assert calls.count / (STREAMS * STEPS) <= EVENT_IN_STUB * MARGIN


def _lmi_form() -> Form:
    return form_of(PROMPT, read_lmi("x", {"stream": True}, Context(), is_body=True).reply)


def _exchange(transport: Transport) -> Exchange:
    cycle = SimpleNamespace(
        chunked_encoding=True,
        response_started=True,
        response_complete=False,
        disconnected=False,
        flow=SimpleNamespace(write_paused=False),
        transport=transport,
        scope={},
    )

    async def send(_: Any) -> None:
        """Take what is said before the middle of the response."""

    async def receive() -> Any:
        """Hear of nothing."""

    scope = {"method": "POST", "path": BODY.path, "headers": [], CLIENT: Client(cycle)}  # type: ignore[arg-type]
    return Exchange(scope, receive, send)


@pytest.mark.parametrize(
    ("work", "frame", "make", "most"),
    [
        pytest.param(BODY, _frame, HttpForm, EVENT_IN_FRONT_END, id="a chat"),
        pytest.param(PROMPT, TOKENS, _lmi_form, LMI_EVENT, id="LMI's lines"),
    ],
)
async def test_what_an_event_costs_the_front_end(
    work: msg.Work, frame: Callable[[int], bytes], make: Callable[[], Form], most: float
) -> None:
    connection = ModelConnection(lambda _: None, lambda _: None)
    connection.connection_made(Transport())  # type: ignore[arg-type]
    model = ModelInfo(name="m", return_seconds=60.0, migration_limit=3)
    connection.data_received(encode([msg.Welcome(Context(), model)]))
    clients = [Transport() for _ in range(STREAMS)]
    tasks = [
        asyncio.create_task(
            send_answer(_exchange(each), connection.submit(work, ""), make(), openai_failure)
        )
        for each in clients
    ]
    calls = Calls()
    for step in range(STEPS):
        data = frame(step)
        await asyncio.sleep(0)
        # The first and the last event of a stream are a task's, what is between is not.
        if 0 < step < STEPS - 1:
            with calls.counted():
                connection.data_received(data)
        else:
            connection.data_received(data)
            await turns()
    await asyncio.gather(*tasks)
    assert [len(each.written) for each in clients] == [STEPS - 2] * STREAMS
    assert calls.count / (STREAMS * (STEPS - 2)) <= most * MARGIN
