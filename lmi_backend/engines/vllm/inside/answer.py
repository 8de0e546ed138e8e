"""The answer to one HTTP body: what vLLM's server writes of it, what we write, and their tokens."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.clients.anthropic.errors import EVENT, in_known_words
from lmi_backend.engines.vllm.inside import images, names
from lmi_backend.engines.vllm.inside.outputs import ids_of, length
from lmi_backend.engines.vllm.inside.replay import resume_strategy_of
from lmi_backend.generation import HttpChunk
from lmi_backend.token_ids import pack

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.engines.protocol import ChunkSink
    from lmi_backend.engines.vllm.inside.kinds import BodyKind, Rendering
    from lmi_backend.generation import Continuation


_FIRST: Final = ("prompt", "sampling_params", "request_id")
"""Parameters of `AsyncLLM.generate`, in their order."""


class BodyAnswer:
    """One body's answer: hands chunks on, and counts their tokens.

    Args:
        sink: takes the chunks.
        engine: the AsyncLLM.
        sends_ids: whether chunks carry the ids of their tokens, where the answer could resume.
        continuation: where it resumes.
        kind: returns the kind of its body, if it can be told.
    """

    def __init__(
        self,
        sink: ChunkSink,
        engine: Any,
        *,
        sends_ids: bool,
        continuation: Continuation | None = None,
        kind: Callable[[], BodyKind | None] = lambda: None,
    ) -> None:
        self._sink, self.engine, self._may_send_ids = sink, engine, sends_ids
        self.continuation, self.kind = continuation, kind
        self.own = _OwnSink(self)
        """Takes what is written without the server."""
        self.head = HttpChunk()
        """Status and headers."""
        self.call: Call | None = None
        """Of the engine, by the server; None if there were several."""
        self.server: Any = None
        """That of vLLM which writes its events, if a stream of our own stands for it."""
        self.num_calls = 0
        self.renderings: list[Rendering] = []
        """Of chats, by the server."""
        self.sends_ids = False
        """Whether chunks carry the ids of their tokens."""
        self.ids = b""
        """Of tokens that no chunk has carried yet."""
        self.is_over = False
        """Whether its last token has come: what is left of it leaves as one chunk."""
        self._buffered = HttpChunk()
        self.buffers_role = False
        """Whether the next event tells a chat's role, and leaves with the first that tells a token.

        The ids of that token come with the role, so a worker that resumes from there would not send
        the token itself.
        """
        self.shows_prompt = False
        """Whether its client wants to see the prompt."""
        self.shows_prompt_only = False
        """Whether the prompt is all that its client wants."""
        self.prompt_tokens = self.generated_tokens = 0
        self.is_cut = False
        """Whether the engine died, also if the server hid that."""
        self.is_written = False
        """Whether all of it was written without the server."""
        self._given = 0

    def may_send_ids(self, params: Any) -> bool:
        """Tell whether chunks of a call with these parameters carry the ids of their tokens."""
        return self._may_send_ids and bool(resume_strategy_of(self.engine, params))

    def begin(self, head: HttpChunk) -> None:
        """Take status and headers from the server."""
        self.head = head

    def take(self, chunk: HttpChunk) -> None:
        """Take a chunk from the server."""
        if self.engine.errored:
            # Perhaps the server's own words of that, in the middle of a stream that can resume.
            self.is_cut = True
            return
        if images.is_refused() or self.is_written:
            # In vLLM's words, as a fault of the server; `HttpApp.respond` raises it.
            return
        if chunk.data.startswith(EVENT):
            chunk.data = in_known_words(chunk.data)
        chunk.num_tokens, self._given = self.generated_tokens - self._given, self.generated_tokens
        chunk.num_prompt_tokens = self.prompt_tokens
        chunk.ids, self.ids = self.ids, b""
        if self.buffers_role and not chunk.is_last:
            self.buffers_role, self._buffered = False, chunk
            return
        if self.is_over and not chunk.is_last:
            # A worker that resumes from an answer's last token would generate more.
            self._buffered.merge(chunk)
            return
        if self._buffered.data:
            self._buffered.merge(chunk)
            self._buffered.status, self._buffered.headers = chunk.status, chunk.headers
            chunk, self._buffered = self._buffered, HttpChunk()
        self._sink.take(chunk)

    def write(self, chunk: HttpChunk) -> None:
        """Take a chunk that was written without the server."""
        if chunk.is_last:
            self.is_written = True
        self._given += chunk.num_tokens
        self._sink.take(chunk)


class Call:
    """One call of `AsyncLLM.generate` by vLLM's server, or in its place.

    Args:
        client: the engine, as the server sees it.
        answer: that it is for.
        given: its arguments.
        named: the others.
    """

    def __init__(
        self, client: Any, answer: BodyAnswer, given: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        self.client, self.answer, self.given, self.named = client, answer, given, named
        self.engine = client.engine
        self.params = named.get("sampling_params", given[1] if len(given) > 1 else None)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `AsyncLLM.add_request`."""
        arguments = dict(zip(_FIRST, self.given, strict=False)) | self.named
        arguments["params"] = arguments.pop("sampling_params")
        return arguments


class _OwnSink:
    """Takes the chunks of an answer of our own."""

    __slots__ = ("defer", "take")

    def __init__(self, answer: BodyAnswer) -> None:
        self.take, self.defer = answer.write, answer._sink.defer


current_answer: contextvars.ContextVar[BodyAnswer | None] = contextvars.ContextVar(
    "current_answer", default=None
)
"""Of this task."""


class Counted:
    """What vLLM's own requests generate for an answer."""

    def __init__(self, engine: Any, answer: BodyAnswer, params: Any) -> None:
        self._answer = answer
        answer.sends_ids = answer.num_calls == 1 and answer.may_send_ids(params)
        self._is_delta = getattr(params, "output_kind", None) == names.RequestOutputKind.DELTA
        self._has_prompt = False
        self._counted: dict[int, int] = {}
        """Tokens that are counted already of what an output tells, by answer."""

    def count(self, output: Any, *, is_known: bool = False) -> None:
        """Count the tokens of an output; vLLM gives all so far, or only what is new.

        Args:
            is_known: whether the stub has their ids.
        """
        if not self._has_prompt:
            self._has_prompt = True
            images.release()
            self._answer.prompt_tokens += length(output.prompt_token_ids)
        for answer in output.outputs:
            ids = ids_of(answer)
            given, counted = len(ids), self._counted.get(answer.index, 0)
            self._answer.generated_tokens += given - counted
            if self._answer.sends_ids and not is_known:
                self._answer.ids += pack(ids[counted:])
            if not self._is_delta:
                self._counted[answer.index] = given
        # A method would be true from the first output on, and nothing would leave before the last.
        if output.finished is True and self._answer.sends_ids:
            self._answer.is_over = True
