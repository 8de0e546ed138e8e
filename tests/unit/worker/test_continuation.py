"""An answer that is written again: what its client gets of it."""

import pytest

from lmi_backend.errors import EngineError
from lmi_backend.generation import Continuation, HttpChunk
from lmi_backend.worker.continuation import ContinuedSink


class Sink:
    def __init__(self) -> None:
        self.data = b""
        self.num_tokens = 0
        self.defer = None

    def take(self, chunk: HttpChunk) -> None:
        self.data += chunk.data
        self.num_tokens += chunk.num_tokens


def event(name: str, text: str, created: int = 5) -> bytes:
    head = f'"id":"{name}","object":"chat","created":{created}'
    return f'data: {{{head},"text":"{text}"}}\n\n'.encode()


def test_what_the_client_has_is_dropped_and_the_rest_keeps_its_name() -> None:
    sink = Sink()
    continued = ContinuedSink(sink, Continuation(b"", 3 * 2, event("first", "a")))  # type: ignore[arg-type]
    # Other chunks than before, and another time.
    for texts in ("a", "bcd", "e"):
        data = b"".join(event("second", text, 70) for text in texts)
        continued.take(HttpChunk(data, num_tokens=len(texts)))
    continued.take(HttpChunk(b"data: [DONE]\n\n", is_last=True))
    assert sink.data == event("first", "d") + event("first", "e") + b"data: [DONE]\n\n"


def test_events_of_several_lines_are_dropped_whole() -> None:
    sink = Sink()
    continued = ContinuedSink(sink, Continuation(b"", 3, b"event: start"))  # type: ignore[arg-type]
    continued.take(HttpChunk(b"event: start\ndata: {}\n\nevent: end\ndata: {}\n\n", is_last=True))
    assert sink.data == b"event: end\ndata: {}\n\n"


@pytest.mark.parametrize(
    "chunk", [HttpChunk(b"{}", is_last=True, status=400), HttpChunk(event("a", "b"), is_last=True)]
)
def test_an_answer_that_is_another_now_ends_with_an_error(chunk: HttpChunk) -> None:
    sink = Sink()
    with pytest.raises(EngineError, match="the answer cannot go on"):
        ContinuedSink(sink, Continuation(b"", 4, b"")).take(chunk)  # type: ignore[arg-type]
    assert sink.data == b""
