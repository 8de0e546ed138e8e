"""Chats whose text a parser reads: what it tells is written from a template, or given back."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm.inside import fast_paths
from lmi_backend.engines.vllm.inside.parsed_stream import (
    NAME,
    DeltaTemplate,
    Parsed,
    ParsedEvents,
    watch,
)
from lmi_backend.generation import HttpChunk
from lmi_backend.token_ids import unpack

EVENT = {
    "id": 'chatcmpl-"delta":{"content":"x"}',
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "lmi",
    "choices": [{"index": 0, "delta": {"content": "x"}, "logprobs": None, "finish_reason": None}],
}
CALL = {"index": 0, "function": {"name": "weather"}}


class Delta:
    """As vLLM 0.32's DeltaMessage: an empty list of tool calls is left out of its JSON."""

    def __init__(self, **given: Any) -> None:
        self.model_fields_set = set(given)
        self.content = given.get("content")
        self.tool_calls = given.get("tool_calls", [])
        self._given = {name: given[name] for name in given if name != "tool_calls" or given[name]}

    def model_dump_json(self, *, exclude_unset: bool) -> str:
        assert exclude_unset
        return json.dumps(self._given, ensure_ascii=False, separators=(",", ":"))


class Parser:
    """Tells "<think>" as reasoning, nothing of "<", a tool call of "call", and the rest."""

    def __init__(self) -> None:
        self.read: list[tuple[str, list[int]]] = []

    def parse_delta(
        self,
        delta_text: str,
        delta_token_ids: list[int],
        request: Any,
        prompt_token_ids: Any = None,
        *,
        finished: bool,
    ) -> Any:
        assert request == "the request"
        self.read.append((delta_text, delta_token_ids))
        if delta_text == "bad":
            raise ValueError("bad text")
        if delta_text.endswith("<"):
            return None
        if "call" in delta_text:
            return Delta(content=None, tool_calls=[CALL])
        if "think" in delta_text:
            return Delta(reasoning=delta_text)
        return Delta(content=delta_text, tool_calls=[])


class State:
    """The part of a RequestState of vLLM that is replaced."""

    def __init__(self) -> None:
        self.text, self.shown = "", 0
        self.detokenizer = SimpleNamespace(
            stop=[], update=self._update, get_next_output_text=self._next
        )
        self.queue = SimpleNamespace(get_nowait=lambda: None, put=self._fail)
        self.request_id = "1"

    def _update(self, ids: list[int], _: bool) -> None:
        self.text += "".join(map(chr, ids))

    def _next(self, *, finished: bool, delta: bool) -> str:
        text, self.shown = self.text[self.shown :], len(self.text)
        return text

    @staticmethod
    def _fail(error: Any) -> None:
        raise error

    def make_request_output(self, ids: list[int], *_: Any) -> Any:
        text = self._next(finished=False, delta=True)
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=ids, text=text)])


class Sink:
    def __init__(self) -> None:
        self.chunks: list[HttpChunk] = []
        self.take = self.chunks.append

    def defer(self, _flush: Any, _num_tokens: int) -> bool:
        return False


def event(**delta: Any) -> bytes:
    (choice,) = EVENT["choices"]  # type: ignore[misc]
    value = EVENT | {"choices": [choice | {"delta": delta}]}
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def replaced(**more: Any) -> tuple[Any, State, Sink, Parser]:
    """Return the replacement in a stream of which the server has written one event."""
    noted: list[Parsed] = []
    server = SimpleNamespace(parser_cls=Parser)
    watch(server, noted.append)
    parser, state, sink = server.parser_cls(), State(), Sink()
    parser.parse_delta(delta_text="x", delta_token_ids=[120], request="the request", finished=False)
    (parsed,) = noted
    template = DeltaTemplate.of(event(content="x"), parsed.delta)
    assert template is not None
    events = ParsedEvents(state, template, sink, parsed, sends_ids=True, **more)  # type: ignore[arg-type]
    parser.read.clear()
    return events, state, sink, parser


def step(state: Any, text: str) -> Any:
    """Have vLLM make an output of the tokens of a text: its characters."""
    ids = [ord(each) for each in text]
    state.detokenizer.update(ids, False)
    return state.make_request_output(ids, None, None)


def last(parser: Any, text: str, ids: list[int]) -> Any:
    """Have the server read its last output."""
    return parser.parse_delta(
        delta_text=text, delta_token_ids=ids, request="the request", finished=True
    )


def test_text_and_reasoning_are_written_and_what_is_nothing_yet_leaves_with_the_next() -> None:
    events, state, sink, parser = replaced()
    for text in ("née", "think", "a<", '"b"'):
        assert step(state, text) is None
    written = [(chunk.data, chunk.num_tokens, *unpack(chunk.ids)) for chunk in sink.chunks]
    assert written == [
        (event(content="née").replace(b"\\u00e9", "é".encode()), 3, [ord(each) for each in "née"]),
        (event(reasoning="think"), 5, [ord(each) for each in "think"]),
        (event(content='"b"'), 5, [ord(each) for each in 'a<"b"']),
    ]
    assert not events.is_over
    # The server has all tokens of its last output, and its parser what it has not read.
    ids = [ord(each) for each in 'néethinka<"b"!']
    assert last(parser, "!", ids).content == "!"
    assert parser.read[-1] == ("!", [ord("!")])
    # Once.
    last(parser, "?", [63])
    assert parser.read[-1] == ("?", [63])


def test_a_tool_call_is_given_back_as_the_parser_told_it() -> None:
    events, state, sink, parser = replaced()
    step(state, "a")
    assert step(state, "call") is None
    assert events.is_over
    (held,) = events.held
    assert held.outputs[0].token_ids == [ord(each) for each in "acall"]
    assert held.outputs[0].text == ""
    assert len(sink.chunks) == 1
    assert events.num_sent == 1
    # The parser has read it once; the server gets what it told.
    given = last(parser, "", held.outputs[0].token_ids)
    assert given.tool_calls == [CALL]
    assert [text for text, _ in parser.read] == ["a", "call"]
    # All that comes next is the server's.
    assert step(state, "b").outputs[0].text == "b"
    last(parser, "b", [98])
    assert parser.read[-1] == ("b", [98])
    assert len(sink.chunks) == 1


def test_an_error_of_the_parser_is_the_servers_to_tell() -> None:
    events, state, _, parser = replaced()
    step(state, "bad")
    assert events.is_over
    with pytest.raises(ValueError, match="bad text"):
        last(parser, "", events.held[0].outputs[0].token_ids)


def test_what_is_no_delta_is_given_back_and_turns_the_path_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})
    events, state, _, parser = replaced()
    monkeypatch.setattr(Delta, "model_dump_json", None)
    step(state, "think")
    assert events.is_over
    assert "NoneType" in fast_paths.states()[NAME]
    assert last(parser, "", events.held[0].outputs[0].token_ids)._given == {"reasoning": "think"}


@pytest.mark.parametrize(
    ("found", "delta"),
    [
        (event(content="y"), Delta(content="x")),
        (event(content="x", refusal=None), Delta(content="x", refusal=None)),
        (event(content=None, tool_calls=[CALL]), Delta(content=None, tool_calls=[CALL])),
        (event(content="x").replace(b'"logprobs":null', b'"logprobs":{}'), Delta(content="x")),
        (event(content="x").replace(b'"created"', b'"usage":{},"created"'), Delta(content="x")),
        (event(content="x").replace(b'"created"', b'"some day":1,"created"'), Delta(content="x")),
        (b"data: [DONE]\n\n", Delta(content="x")),
    ],
)
def test_an_event_that_tells_more_than_its_delta_is_no_template(found: bytes, delta: Any) -> None:
    assert DeltaTemplate.of(found, delta) is None


def _more(self: Any, delta_text: str, delta_token_ids: Any, request: Any, phase: int) -> None:
    """Has a parameter that no release had: it may change with each delta."""


def _less(self: Any, text: str, request: Any) -> None:
    """Has other names."""


@pytest.mark.parametrize(("method", "why"), [(_more, "takes phase"), (_less, "takes text")])
def test_other_parsers_than_those_of_the_releases_are_named(method: Any, why: str) -> None:
    kind = type("Other", (), {"parse_delta": method})
    server = SimpleNamespace(parser_cls=kind)
    with pytest.raises(TypeError, match=why):
        watch(server, lambda _: None)
    assert server.parser_cls is kind
