"""The answer to one HTTP body: what vLLM's server writes of it, what we write, and their tokens."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.engines.vllm import compat
from lmi_backend.engines.vllm.plain_stream import Middle, Pattern
from lmi_backend.generation import HttpChunk

if TYPE_CHECKING:
    from lmi_backend.engines.protocol import ChunkSink

_TRIES: Final = 4
"""Events of a stream that are looked at, whether they are plain."""


class Answer:
    """One body's answer: hands chunks on, and counts their tokens."""

    def __init__(self, sink: ChunkSink, engine: Any, *, may_be_plain: bool) -> None:
        self._sink, self._engine, self.may_be_plain = sink, engine, may_be_plain
        self.prompt_tokens = self.generated_tokens = 0
        self.num_generations = 0
        """That the server has asked the engine for."""
        self.last_data = b""
        self.has_middle = False
        """Whether all between the first and the last events is written without the server."""
        self.is_cut = False
        """Whether the engine died, whatever last chunk the server made of that."""
        self._given = 0
        self.defer = sink.defer

    def take(self, chunk: HttpChunk) -> None:
        """Take a chunk from the server."""
        if chunk.is_last and self._engine.errored:
            self.is_cut = True
            return
        chunk.num_tokens, self._given = self.generated_tokens - self._given, self.generated_tokens
        chunk.num_prompt_tokens = self.prompt_tokens
        self.last_data = chunk.data
        self._sink.take(chunk)

    def take_event(self, event: bytes, num_tokens: int) -> None:
        """Take an event that was written without the server."""
        chunk = HttpChunk(event, num_tokens=num_tokens, num_prompt_tokens=self.prompt_tokens)
        self._sink.take(chunk)


answers: contextvars.ContextVar[Answer | None] = contextvars.ContextVar("answers", default=None)


class Generation:
    """What the engine generates for an answer."""

    def __init__(self, engine: Any, answer: Answer, params: Any) -> None:
        self._engine, self._answer = engine, answer
        answer.num_generations += 1
        self._is_delta = getattr(params, "output_kind", None) == compat.RequestOutputKind.DELTA
        self._tries = _TRIES if answer.may_be_plain and self._is_delta and params.n == 1 else 0
        self._has_prompt = False
        self._counted: dict[int, int] = {}
        """Tokens that are counted already of what an output tells, by answer."""
        self._middle: Middle | None = None

    def count(self, output: Any) -> None:
        """Count the tokens of an output; vLLM gives all so far, or only what is new."""
        if not self._has_prompt:
            self._has_prompt = True
            self._answer.prompt_tokens += len(output.prompt_token_ids or ())
        if self._middle is not None:
            self._counted[0] = self._middle.num_sent
        for answer in output.outputs:
            given = len(answer.token_ids)
            self._answer.generated_tokens += given - self._counted.get(answer.index, 0)
            if not self._is_delta:
                self._counted[answer.index] = given

    def sent(self, output: Any) -> None:
        """Note that the server has sent what it made of an output; write the next if that is plain.

        Nothing may wait between the server's event and ours.
        """
        if not self._tries or output.finished or self._answer.num_generations > 1:
            return
        self._tries -= 1
        state = compat.running_state(self._engine, output.request_id)
        pattern = Pattern.of(self._answer.last_data, output.outputs[0].text) if state else None
        if pattern is not None:
            self._tries = 0
            self._middle = Middle(state, pattern, self._answer)
            self._answer.has_middle = True
