"""The chunks of a stream that is written from the pieces of an answer."""

from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm.answers import Piece
from lmi_backend.engines.vllm.streams import StreamWriter, TextParser
from lmi_backend.generation import HttpChunk
from tests.unit.engines.vllm.vllm_parts import PROMPT
from tests.unit.engines.vllm.vllm_server import Parser, layouts, read_events

pytestmark = pytest.mark.usefixtures("vllm")

HEAD = HttpChunk(status=201, headers={"content-type": "text/event-stream"})


def writer(*, has_parser: bool = False, choice: Any = "auto", **more: Any) -> StreamWriter:
    parser = TextParser(Parser(), SimpleNamespace(tool_choice=choice)) if has_parser else None
    made = layouts(has_parser=has_parser)
    found = StreamWriter(made, HEAD, "chatcmpl-7", **{"sends_ids": True, "parser": parser} | more)
    found.begin(PROMPT, len(PROMPT))
    return found


def piece(text: str, reason: str | None = None, stop: Any = None) -> Piece:
    return Piece(0, text, [ord(each) for each in text], None, None, reason, stop)


def choices(chunk: Any) -> list[Any]:
    """Return the deltas and the reasons of the events of a chunk."""
    return [
        (choice["delta"], choice["finish_reason"])
        for each in read_events(chunk.data)
        if type(each) is dict
        for choice in each["choices"]
    ]


@pytest.mark.parametrize(
    ("text", "reason", "choice", "expected"),
    [
        ("$", "stop", "auto", "tool_calls"),
        ("$", "length", "auto", "length"),
        ("a", "stop", "auto", "stop"),
        ("$", "stop", None, "tool_calls"),
        ("$", "stop", SimpleNamespace(function="f"), "stop"),
    ],
)
def test_a_call_of_a_tool_ends_as_clients_of_tools_want_it(
    text: str, reason: str, choice: Any, expected: str
) -> None:
    made = writer(has_parser=True, choice=choice)
    first, last = made.chunk(piece(text)), made.chunk(piece("b", reason))
    delta = choices(first)[-1][0]
    assert ("tool_calls" in delta) is (text == "$")
    assert choices(last) == [({"content": "b"}, expected)]


def test_an_error_of_the_parser_is_the_answers() -> None:
    with pytest.raises(ValueError, match="no such text"):
        writer(has_parser=True).chunk(piece("broken"))
