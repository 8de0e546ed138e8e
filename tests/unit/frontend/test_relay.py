"""An event that is passed on leaves its form as one that the form writes."""

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.clients.openai import HttpForm
from lmi_backend.clients.registry import CLIENTS
from lmi_backend.clients.responses import BackgroundForm
from lmi_backend.errors import EngineDeadError, EngineError
from lmi_backend.frontend.answer import Forwarding
from lmi_backend.generation import Delta, HttpChunk, Token
from lmi_backend.tokenization import pack
from tests.unit.frontend.test_resumable_form import forms as streams_of_tokens

HEADERS = {"content-type": "text/event-stream"}
FIRST = b'event: response.created\ndata: {"type":"response.created","sequence_number":0,'
FIRST += b'"response":{"id":"r"}}\n\n'
STREAMS = [
    [b'data: {"sequence_number":%d}\n\n' % number for number in range(1, 8)],
    [b"data: half an event"],
    [b'data: {"a":1}\n\n', b'data: {"error":{"message":"a","code":500}}\n\n'],
    [
        b'data: {"a":1}\n\n',
        b'event: error\ndata: {"type":"error"}\n\n',
    ],
    ['data: {"a":"\u2028\u2029\u0085é“\u2027"}\n\n'.encode()],
]


def _forms(kind: type[HttpForm] = HttpForm) -> Iterator[type[HttpForm]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _forms(below)


PASSING = [kind for kind in _forms() if kind.passes_events]


def test_these_are_forms_of_clients() -> None:
    assert {type(spec.form()) for spec in CLIENTS.values()} & set(PASSING)


def _ended(form: HttpForm, events: list[bytes], *, passes: bool) -> tuple[object, ...]:
    """Return what becomes of events and then a failure, and what is noted of them."""
    written: list[bytes] = []

    def pass_on(data: bytes) -> bool:
        written.append(data)
        return True

    client = SimpleNamespace(pass_on=pass_on, unsent=int)
    exchange: Any = SimpleNamespace(client=client, has_passed=lambda *_: None)
    answer: Any = SimpleNamespace()
    forward = Forwarding(exchange, form, answer)
    written.append(form.write([HttpChunk(FIRST, status=200, headers=HEADERS)]))
    for data in events:
        if passes:
            assert forward.pass_event(data, 1, 0.0)
        else:
            written.append(form.write([HttpChunk(data)]))
    return b"".join(written), form.is_failed, form.failure(EngineDeadError("CUDA error"))


@pytest.mark.parametrize(
    "events", STREAMS, ids=["numbered", "half", "failed", "failed-by-name", "split"]
)
@pytest.mark.parametrize("kind", PASSING, ids=lambda kind: kind.__name__)
def test_a_passed_event_is_noted_as_a_written_one(
    kind: type[HttpForm], events: list[bytes]
) -> None:
    assert _ended(kind(), events, passes=True) == _ended(kind(), events, passes=False)


SPLITTING = "a\u2028b\u2029c\u0085d"
"""What readers that know Unicode, such as httpx's `iter_lines`, split."""


def _written_by_us() -> Iterator[tuple[str, bytes]]:
    """Yield what each kind of stream makes of a text and of an error."""
    error = EngineError(SPLITTING)
    for name, make in streams_of_tokens().items():
        form = make()
        token = Token(5, SPLITTING, -0.5)
        deltas = [Delta(SPLITTING, 1, tokens=(token,), ids=pack([5])) for _ in range(3)]
        yield name, b"".join(form.write([each]) for each in deltas) + form.failure(error).data
    for client in CLIENTS.values():
        form = client.form()
        event = json.dumps({"response": {}, "text": SPLITTING}, ensure_ascii=False).encode()
        data = form.write([HttpChunk(b"data: %s\n\n" % event, status=200, headers=HEADERS)])
        yield client.name, data + form.failure(error).data
    background = BackgroundForm(is_stream=True)
    yield "background", background.write([HttpChunk(b"data: %s\n\n" % event, headers=HEADERS)])


@pytest.mark.parametrize(("name", "data"), [*_written_by_us()])
def test_no_event_is_split_by_a_reader_that_knows_unicode(name: str, data: bytes) -> None:
    lines = [line for line in data.decode().splitlines() if line]
    assert lines == [line for line in data.decode().split("\n") if line]
    assert rb"\u2028" in data, name
