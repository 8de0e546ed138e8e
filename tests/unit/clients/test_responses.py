"""The end of a stream of OpenAI's responses whose engine fails."""

import json
from typing import Any

import pytest

from lmi_backend.clients.responses import ResponsesForm
from lmi_backend.errors import EngineDeadError
from lmi_backend.generation import HttpChunk

HEADERS = {"content-type": "text/event-stream"}


def event(kind: str, number: int, **members: Any) -> bytes:
    body = {"type": kind, "sequence_number": number, **members}
    return f"event: {kind}\ndata: {json.dumps(body)}\n\n".encode()


CREATED = event("response.created", 0, response={"id": "r", "status": "in_progress"})


@pytest.mark.parametrize(
    ("chunks", "numbers"),
    [
        ([CREATED], [1, 2]),
        ([CREATED + event("response.output_text.delta", 1)], [2, 3]),
        ([CREATED, event("a", 1) + event("b", 2), b": ping\n\n"], [3, 4]),
        ([CREATED, event("a", 9)], [10, 11]),
        # Without the response there is none to be failed.
        ([event("a", 4)], [5]),
        ([b": ping\n\n"], [0]),
    ],
)
def test_a_failure_is_numbered_after_the_last_event(
    chunks: list[bytes], numbers: list[int]
) -> None:
    form = ResponsesForm()
    form.write([HttpChunk(b"", status=200, headers=HEADERS)])
    for data in chunks:
        assert form.write([HttpChunk(data)]) == data
    ending = form.failure(EngineDeadError("CUDA error"))
    assert ending.is_end
    parts = [part.split(b"\n") for part in ending.data.split(b"\n\n")[:-1]]
    bodies = [json.loads(data.removeprefix(b"data: ")) for _, data in parts]
    assert [each["sequence_number"] for each in bodies] == numbers
    kinds = ["response.failed", "error"][-len(numbers) :]
    assert [name for name, _ in parts] == [f"event: {kind}".encode() for kind in kinds]
    assert [each["type"] for each in bodies] == kinds
    if len(bodies) > 1:
        assert bodies[0]["response"] == {
            "id": "r",
            "status": "failed",
            "error": {"code": "server_error", "message": bodies[-1]["message"]},
        }
