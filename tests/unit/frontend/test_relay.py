"""An event that is passed on leaves its form as one that the form writes."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.clients.openai.form import HttpForm
from lmi_backend.clients.registry import CLIENTS
from lmi_backend.errors import EngineDeadError
from lmi_backend.frontend.relay import _Forward
from lmi_backend.generation import HttpChunk

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
    exchange: Any = SimpleNamespace(direct=client, has_passed=lambda *_: None)
    answer: Any = SimpleNamespace()
    forward = _Forward(exchange, form, answer)
    written.append(form.write([HttpChunk(FIRST, status=200, headers=HEADERS)]))
    for data in events:
        if passes:
            assert forward.pass_event(data, 1, 0.0)
        else:
            written.append(form.write([HttpChunk(data)]))
    return b"".join(written), form.is_failed, form.failure(EngineDeadError("CUDA error"))


@pytest.mark.parametrize("events", STREAMS, ids=["numbered", "half", "failed", "failed-by-name"])
@pytest.mark.parametrize("kind", PASSING, ids=lambda kind: kind.__name__)
def test_a_passed_event_is_noted_as_a_written_one(
    kind: type[HttpForm], events: list[bytes]
) -> None:
    assert _ended(kind(), events, passes=True) == _ended(kind(), events, passes=False)
