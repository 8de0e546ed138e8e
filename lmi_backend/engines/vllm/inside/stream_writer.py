"""Write the events of one of OpenAI's streams from the pieces of an answer of our own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmi_backend.engines.vllm.inside import names
from lmi_backend.engines.vllm.inside.layouts import DONE, USAGE
from lmi_backend.engines.vllm.inside.outputs import unfit
from lmi_backend.generation import HttpChunk
from lmi_backend.token_ids import pack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmi_backend.engines.vllm.inside.answers import Piece
    from lmi_backend.engines.vllm.inside.layouts import EventLayout, StreamLayouts

_encode = msgspec.json.encode
_CONTENT_ALONE: Final = {"content"}


class FailedOutputError(Exception):
    """vLLM's core has failed on a request, and an output says so."""


class TextParser:
    """A parser of vLLM, of tools or of reasoning, that reads the text of one answer.

    Args:
        theirs: vLLM's.
        request: the body, as vLLM has read it.
    """

    def __init__(self, theirs: Any, request: Any) -> None:
        self._theirs, self._request = theirs, request
        self._prompt_ids: Sequence[int] | None = None
        self._ids: list[int] = []
        choice = getattr(request, "tool_choice", None)
        self._is_named = choice is not None and not isinstance(choice, str)
        self._has_calls = False

    def begin(self, prompt_ids: Sequence[int] | None) -> None:
        """Note the prompt."""
        self._prompt_ids = prompt_ids

    def read(self, text: str, ids: Sequence[int], *, is_last: bool) -> Any:
        """Return vLLM's DeltaMessage of new text; None if the parser waits for more."""
        self._ids += ids
        delta = self._theirs.parse_delta(
            delta_text=text,
            delta_token_ids=list(ids),
            request=self._request,
            prompt_token_ids=self._prompt_ids,
            finished=is_last,
        )
        if delta is not None and delta.tool_calls:
            self._has_calls = True
        return names.DeltaMessage() if delta is None and is_last else delta

    def reason(self, found: str | None) -> str | None:
        """Return why an answer is finished, as clients of tools want it."""
        is_call = found == "stop" and self._has_calls and not self._is_named
        return "tool_calls" if is_call else found

    @property
    def reasoning_tokens(self) -> int:
        """How many tokens of the answer are reasoning."""
        count: int = self._theirs.count_reasoning_tokens(tuple(self._ids))
        return count


class StreamWriter:
    """Makes the chunks of one answer; `answers.generate` gives it the pieces.

    Args:
        layouts: of the events.
        head: of the answer: status and headers.
        answer_id: the member `id` of all events.
        sends_ids: whether chunks carry the ids of their tokens.
        parser: reads the text, where the model has one.
        is_structured: whether the answer has to fit a grammar.
    """

    is_whole = False
    writes_known = True

    def __init__(
        self,
        layouts: StreamLayouts,
        head: HttpChunk,
        answer_id: str,
        *,
        sends_ids: bool,
        parser: TextParser | None = None,
        is_structured: bool = False,
    ) -> None:
        self._layouts, self._head, self._sends_ids = layouts, head, sends_ids
        self._parser, self._is_structured = parser, is_structured
        self._stream = {"id": answer_id, "created": int(time.time())}
        self._before, self._after = layouts.middle.filled(self._stream).parts
        self._waiting: list[int] = []
        """Tokens that the parser has made nothing of yet."""
        self.num_tokens = self.num_prompt_tokens = 0
        self.is_begun = False
        """Whether any chunk was made."""

    def begin(self, prompt_ids: Sequence[int] | None, num_prompt_tokens: int) -> None:
        """Note the prompt."""
        self.num_prompt_tokens = num_prompt_tokens
        if self._parser is not None:
            self._parser.begin(prompt_ids)

    def chunk(self, piece: Piece) -> HttpChunk | None:
        """Return the chunk of a piece; None if the parser waits for more."""
        ids: Sequence[int] = piece.token_ids
        self.num_tokens += len(ids)
        if self._parser is not None:
            is_last = piece.finish_reason is not None
            delta = self._parser.read(piece.text, ids, is_last=is_last)
            ids = self._waiting = [*self._waiting, *ids]
            if delta is None:
                return None
            new, self._waiting = _json(delta), []
        else:
            new = _encode(piece.text)
        # Most chunks are made here, so nothing is called that can be said in a line.
        if piece.finish_reason is None:
            data = self._before + new + self._after
        else:
            data = self._last(new, piece)
        chunk = HttpChunk(
            data,
            piece.finish_reason is not None,
            num_tokens=len(ids),
            num_prompt_tokens=self.num_prompt_tokens,
            ids=pack(ids) if self._sends_ids else b"",
        )
        if not self.is_begun:
            self.is_begun = True
            # The ids of the first token come with the role.
            role = self._layouts.role
            chunk.data = (role.event(self._stream) if role else b"") + data
            chunk.status, chunk.headers = self._head.status, self._head.headers
        return chunk

    def add_prompt(self, chunk: HttpChunk, logprobs: Any) -> None:
        """Add nothing: vLLM writes such streams."""

    def failure(self, num_tokens: int) -> Exception:
        """Return why vLLM has failed on the request."""
        if self._is_structured:
            error: Exception = names.VLLMClientError(f"structured_outputs {unfit(num_tokens)}")
            return error
        return FailedOutputError()

    def _last(self, new: bytes, piece: Piece) -> bytes:
        """Return the last events."""
        reason = piece.finish_reason
        if self._parser is not None:
            reason = self._parser.reason(reason)
        ends = {"finish_reason": reason, "stop_reason": piece.stop_reason}
        event = _filled(self._layouts.last, self._stream | ends, new)
        usage = self._layouts.usage
        return event + (usage.event(self._stream | self._counts(usage)) if usage else b"") + DONE

    def _counts(self, usage: EventLayout) -> dict[str, int]:
        prompt, completion = self.num_prompt_tokens, self.num_tokens
        counts = dict(zip(USAGE, (prompt, completion, prompt + completion), strict=True))
        if "reasoning_tokens" in usage.gaps:
            counts["reasoning_tokens"] = self._parser.reasoning_tokens if self._parser else 0
        return counts


def _filled(layout: EventLayout, values: dict[str, Any], new: bytes) -> bytes:
    """Return an event with its gaps filled; what is new is JSON already."""
    left = layout.filled(values)
    before, after = left.parts
    return before + new + after


def _json(delta: Any) -> bytes:
    """Return a DeltaMessage as vLLM's server writes it."""
    if delta.model_fields_set == _CONTENT_ALONE and type(delta.content) is str:
        return b'{"content":' + _encode(delta.content) + b"}"
    made: str = delta.model_dump_json(exclude_unset=True)
    return made.encode()
