"""The chunks of a stream that is written from the pieces of an answer."""

from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm.answers import Piece
from lmi_backend.engines.vllm.streams import StreamWriter, TextParser
from lmi_backend.generation import HttpChunk
from lmi_backend.tokenization import pack
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


def test_an_answer_of_one_piece_is_one_chunk_without_ids_where_nobody_wants_them() -> None:
    only = writer(sends_ids=False).chunk(piece("", "stop"))
    assert only is not None
    assert (only.is_last, only.ids, only.num_prompt_tokens) == (True, b"", len(PROMPT))
    assert (only.status, only.headers) == (201, HEAD.headers)
    assert len(read_events(only.data)) == len(("role", "text", "usage", "done"))


def test_tokens_of_which_a_parser_tells_nothing_leave_with_the_next() -> None:
    made = writer(has_parser=True)
    assert made.chunk(piece("a<")) is None
    assert not made.is_begun
    chunk = made.chunk(piece('"é'))
    assert chunk is not None
    assert choices(chunk)[1:] == [({"content": 'a<"é'}, None)]
    assert (chunk.num_tokens, chunk.ids) == (4, pack([ord(each) for each in 'a<"é']))
    last = made.chunk(piece("", "length"))
    assert last is not None
    # An empty delta carries the end, as in vLLM's own stream.
    assert choices(last) == [({}, "length")]
    assert (last.num_tokens, last.ids) == (0, pack([]))


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
