"""Write the middle of chats that a parser of vLLM reads, without vLLM's server.

Where an engine has a parser of tools or of reasoning, vLLM's server has it read each text, and
writes an event of the result. Here the same parser reads the same texts. While its results are text
alone, their events are written from the template of the first one. The first other result, such as
a tool call, is handed to the server, which writes the rest.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmi_backend.engines.vllm.inside import fast_paths, idle, plain_stream
from lmi_backend.engines.vllm.inside.plain_stream import TemplatedEvents
from lmi_backend.engines.vllm.inside.token_reader import leave

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lmi_backend.engines.protocol import ChunkSink

NAME: Final = "parsed_stream"
EXPECTED: Final = "a parser that makes a delta or nothing of a text and its tokens"
_READ: Final = ("delta_text", "delta_token_ids")
_KNOWN: Final = frozenset({"self", *_READ, "request", "prompt_token_ids", "finished"})
"""Parameters of a parser's method; all but the text and its tokens are the same in the middle."""
_MEMBERS: Final = frozenset({"content", "reasoning", "reasoning_content", "tool_calls"})
"""Of a delta that tells text alone; it has no tool calls."""
_KEY: Final = b'"delta":'
_encode: Final = msgspec.json.encode


@dataclass(frozen=True)
class Parsed:
    """What a parser was given in the middle of a stream, and what it made of that."""

    parser: Any
    parse: Callable[..., Any]
    """Its method, as vLLM has it."""
    text: str
    more: tuple[Any, ...]
    named: Mapping[str, Any]
    delta: Any
    """vLLM's DeltaMessage; None if the parser waits for more."""

    def read(self, text: str, ids: Sequence[int]) -> Any:
        """Have the parser read what came next; return its result.

        Raises:
            Exception: the parser's.
        """
        return self.parse(self.parser, text, list(ids), *self.more, **self.named)


def watch(server: Any, note: Callable[[Parsed], None]) -> None:
    """Note from now on what the parsers of a chat server of vLLM read and make.

    Raises:
        TypeError: it has other parsers than those of the releases that were run.
    """
    kind = server.parser_cls
    parameters = inspect.signature(kind.parse_delta).parameters
    if unknown := parameters.keys() - _KNOWN:
        raise TypeError(f"parse_delta takes {', '.join(sorted(unknown))}")
    if [name for name in parameters if name != "self"][: len(_READ)] != list(_READ):
        raise TypeError(f"parse_delta takes {', '.join(parameters)}")
    own = kind.parse_delta

    def parse_delta(
        parser: Any, delta_text: str, delta_token_ids: Any, *more: Any, **named: Any
    ) -> Any:
        delta = own(parser, delta_text, delta_token_ids, *more, **named)
        idle.note_use(NAME)
        note(Parsed(parser, own, delta_text, more, named, delta))
        return delta

    watched = type(
        kind.__name__, (kind,), {"parse_delta": parse_delta, "__module__": kind.__module__}
    )
    server.parser_cls = watched
    if server.parser_cls is not watched:
        raise TypeError("parser_cls cannot be replaced")


def tells_text(delta: Any) -> bool:
    """Tell whether a DeltaMessage of vLLM tells text alone."""
    return not delta.tool_calls and delta.model_fields_set <= _MEMBERS


def _json(delta: Any) -> bytes:
    made: str = delta.model_dump_json(exclude_unset=True)
    return made.encode()


def _json_of_content(delta: Any) -> bytes:
    return b'{"content":' + _encode(delta.content) + b"}"


@dataclass(frozen=True)
class DeltaTemplate:
    """The bytes of an event before and after its delta. `of` makes one."""

    before: bytes
    after: bytes
    of_content: frozenset[str]
    """Members of deltas whose content alone is written; empty if there are none."""

    @classmethod
    def of(cls, event: bytes, delta: Any) -> DeltaTemplate | None:
        """Return the template of an event that tells a text, or None if it tells more.

        Args:
            delta: the result of the parser that was written as this event.
        """
        if not tells_text(delta):
            return None
        data = _json(delta)
        # Inside a string its quotes would be escaped.
        before, found, after = event.partition(_KEY + data)
        others = plain_stream.beside_delta(event)
        if not found or others is None or not others <= plain_stream.further:
            return None
        is_content = type(delta.content) is str and data == _json_of_content(delta)
        return cls(before + _KEY, after, frozenset(delta.model_fields_set if is_content else ()))

    def event(self, delta: Any) -> bytes:
        """Return the event of another delta that tells text alone."""
        is_content = delta.model_fields_set == self.of_content and type(delta.content) is str
        data = _json_of_content(delta) if is_content else _json(delta)
        return self.before + data + self.after


class ParsedEvents(TemplatedEvents):
    """Replaces the part of a RequestState of vLLM that makes outputs, as its base does.

    Args:
        state: the request's, in vLLM; it makes an output for each token.
        template: of its events.
        sink: takes them.
        parsed: what the server's parser read last.
        num_prompt_tokens: length of the prompt.
        sends_ids: whether events carry the ids of their tokens.
    """

    def __init__(
        self,
        state: Any,
        template: DeltaTemplate,
        sink: ChunkSink,
        parsed: Parsed,
        *,
        num_prompt_tokens: int = 0,
        sends_ids: bool = False,
    ) -> None:
        self._parsed = parsed
        self._num_read = 0
        """Tokens since the replacement that the parser has read."""
        self._result = _Result()
        parsed.parser.parse_delta = self._parse
        super().__init__(
            state, template, sink, num_prompt_tokens=num_prompt_tokens, sends_ids=sends_ids
        )

    def _event(self, text: str) -> bytes:
        new, self._num_read = self._ids[self._num_read :], len(self._ids)
        try:
            # Perhaps all have been read.
            delta = self._parsed.read(text, new) if new else None
        except Exception as error:  # noqa: BLE001  vLLM's server says it in its own words
            self._give_back(_Result(error=error))
            return b""
        if delta is None:
            return b""
        try:
            event = self._template.event(delta) if tells_text(delta) else b""
        except Exception as error:  # noqa: BLE001  vLLM's server writes the rest of this answer
            fast_paths.turn_off(NAME, EXPECTED, f"{type(error).__name__}: {error}")
            event = b""
        if not event:
            self._give_back(_Result(delta))
        return event

    def _give_back(self, result: _Result) -> None:
        """Have vLLM's server write the last result of the parser, and all that comes next."""
        self._state.make_request_output, self.is_over = self._make, True
        leave(self._state)
        ids, self._ids = self._ids, []
        self._result, self.held = result, [self._make(ids, None, None, None)]

    def _parse(
        self, delta_text: str, delta_token_ids: Sequence[int], *more: Any, **named: Any
    ) -> Any:
        """Return to the server what the parser makes of tokens that it may have read already."""
        # Once: what comes next is read as by any other.
        del self._parsed.parser.parse_delta
        result = self._result
        if result.error is not None:
            raise result.error
        if result.delta is not None:
            return result.delta
        # The server has all tokens since the replacement, and the text that was not read.
        rest = list(delta_token_ids)[self._num_read :]
        return self._parsed.parse(self._parsed.parser, delta_text, rest, *more, **named)


@dataclass
class _Result:
    """What a parser has made that the server has not got."""

    delta: Any = None
    error: Exception | None = None
