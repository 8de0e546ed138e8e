"""The answer to one HTTP body: what vLLM's server writes of it, what we write, and their tokens."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.clients.anthropic.errors import EVENT, in_known_words
from lmi_backend.engines.vllm.inside import (
    compat,
    fast_paths,
    images,
    names,
    parsed_stream,
    plain_stream,
)
from lmi_backend.engines.vllm.inside.continuation import (
    check_begun,
    current,
    resume_strategy_of,
)
from lmi_backend.engines.vllm.inside.idle import PassedBy
from lmi_backend.engines.vllm.inside.outputs import ids_of, length
from lmi_backend.engines.vllm.inside.parsed_stream import DeltaTemplate, Parsed, ParsedEvents
from lmi_backend.engines.vllm.inside.plain_stream import Template, TemplatedEvents
from lmi_backend.generation import HttpChunk
from lmi_backend.token_ids import pack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmi_backend.engines.protocol import ChunkSink

_TRIES: Final = 4
"""Events of a stream that are looked at, whether they are plain."""
_passed: Final = {
    "plain_stream": PassedBy("plain_stream", "events that tell a text and nothing else"),
    parsed_stream.NAME: PassedBy(parsed_stream.NAME, "events that tell a delta and nothing else"),
}


class BodyAnswer:
    """One body's answer: hands chunks on, and counts their tokens."""

    def __init__(
        self,
        sink: ChunkSink,
        engine: Any,
        *,
        may_be_plain: bool,
        sends_ids: bool,
        is_parsed: bool = False,
    ) -> None:
        self._sink, self.engine, self.may_be_plain = sink, engine, may_be_plain
        self.is_parsed = is_parsed
        """Whether a parser of vLLM reads its text."""
        self.parsed: Parsed | None = None
        """What that read last."""
        self.sends_ids = sends_ids
        """Whether chunks carry the ids of their tokens, where the answer could resume from them."""
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
        self.num_generations = 0
        """Calls of the engine by the server."""
        self.last_data = b""
        self.has_template = False
        """Whether all between the first and the last events is written without the server."""
        self.is_cut = False
        """Whether the engine died, also if the server hid that."""
        self._given = 0

    def take(self, chunk: HttpChunk) -> None:
        """Take a chunk from the server."""
        if self.engine.errored:
            # Perhaps the server's own words of that, in the middle of a stream that can resume.
            self.is_cut = True
            return
        if images.is_refused():
            # In vLLM's words, as a fault of the server; `HttpApp.respond` raises it.
            return
        if chunk.data.startswith(EVENT):
            chunk.data = in_known_words(chunk.data)
        chunk.num_tokens, self._given = self.generated_tokens - self._given, self.generated_tokens
        chunk.num_prompt_tokens = self.prompt_tokens
        chunk.ids, self.ids = self.ids, b""
        self.last_data = chunk.data
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

    def find_template(self, state: Any, output: Any) -> TemplatedEvents | None:
        """Have the events of a request's middle written without the server, if they are plain.

        Args:
            state: the request's, in vLLM.
            output: the last event has its tokens.
        """
        if (parsed := self.parsed) is not None:
            around = DeltaTemplate.of(self.last_data, parsed.delta)
            is_of_it = parsed.text == output.outputs[0].text and not compat.has_interval(state)
            if around is None or not is_of_it:
                return None
            self.has_template = True
            return ParsedEvents(
                state,
                around,
                self._sink,
                parsed,
                num_prompt_tokens=self.prompt_tokens,
                sends_ids=self.sends_ids,
            )
        template = Template.of(self.last_data, output.outputs[0].text)
        if template is None:
            return None
        self.has_template = True
        return TemplatedEvents(
            state,
            template,
            self._sink,
            compat.take_interval(state),
            num_prompt_tokens=self.prompt_tokens,
            sends_ids=self.sends_ids,
        )


answers: contextvars.ContextVar[BodyAnswer | None] = contextvars.ContextVar("answers", default=None)


def note_parsed(parsed: Parsed) -> None:
    """Note in the answer of this task what a parser has read."""
    if (answer := answers.get()) is not None:
        answer.parsed = parsed


class Generation:
    """What the engine generates for an answer."""

    def __init__(self, engine: Any, answer: BodyAnswer, params: Any) -> None:
        self._engine, self._answer = engine, answer
        answer.num_generations += 1
        if answer.sends_ids:
            answer.sends_ids = answer.num_generations == 1 and bool(
                resume_strategy_of(engine, params)
            )
        self._is_delta = getattr(params, "output_kind", None) == names.RequestOutputKind.DELTA
        may_be_plain = answer.may_be_plain and fast_paths.is_on("plain_stream")
        if answer.is_parsed:
            may_be_plain = may_be_plain and fast_paths.is_on(parsed_stream.NAME)
        self._tries = _TRIES if may_be_plain and self._is_delta and params.n == 1 else 0
        self._has_prompt = False
        self._counted: dict[int, int] = {}
        """Tokens that are counted already of what an output tells, by answer."""
        self._templated: TemplatedEvents | None = None

    def count(self, output: Any, *, is_known: bool = False) -> None:
        """Count the tokens of an output; vLLM gives all so far, or only what is new.

        Args:
            is_known: whether the stub has their ids.
        """
        if not self._has_prompt:
            self._has_prompt = True
            images.release()
            self._answer.prompt_tokens += length(output.prompt_token_ids)
        if self._templated is not None:
            self._counted[0] = self._templated.num_sent
        for answer in output.outputs:
            ids = ids_of(answer)
            given, counted = len(ids), self._counted.get(answer.index, 0)
            self._answer.generated_tokens += given - counted
            if self._answer.sends_ids and not is_known:
                self._answer.ids += pack(ids[counted:])
            if not self._is_delta:
                self._counted[answer.index] = given
        if self._templated is not None and self._templated.is_over:
            self._templated, self._answer.has_template, self._counted = None, False, {}
        # A method would be true from the first output on, and nothing would leave before the last.
        if output.finished is True and self._answer.sends_ids:
            self._answer.is_over = True

    def held(self) -> Iterator[Any]:
        """Yield the outputs that are the server's to write before the next one, once."""
        held = self._templated.held if self._templated is not None else []
        while held:
            self.count(held[0])
            yield held.pop(0)

    def sent(self, output: Any) -> None:
        """Note that the server has sent what it made of an output; write the next if that is plain.

        Nothing may wait between the server's event and ours.
        """
        if not self._tries or output.finished or self._answer.num_generations > 1:
            return
        is_parsed = self._answer.is_parsed
        if is_parsed and (self._answer.parsed is None or self._answer.parsed.delta is None):
            # No event was made of it.
            return
        self._tries -= 1
        path = parsed_stream.NAME if is_parsed else "plain_stream"
        try:
            state = compat.running_state(self._engine, output.request_id)
            found = self._answer.find_template(state, output) if state else None
        except Exception as error:  # noqa: BLE001  vLLM's server writes the events, then
            self._tries = 0
            came = f"{type(error).__name__}: {error}"
            fast_paths.turn_off(path, "a state of each request, and its events", came)
            return
        if found is not None:
            self._tries = 0
            self._templated = found
            _passed[path].took()
        elif state and not self._tries:
            event, text = self._answer.last_data, output.outputs[0].text
            others = plain_stream.beside_delta(event) if is_parsed else None
            _passed[path].passed(
                plain_stream.unknown_of(others)
                if others is not None
                else plain_stream.unknown_members(event, text)
            )


def earlier_outputs(generation: Generation | None) -> Iterator[Any]:
    """Yield the outputs that the server gets before the next one of the engine.

    The client of a request that resumes has had some. Others were kept for the server.

    Raises:
        EngineError: it does not resume.
    """
    check_begun()
    continued = current.get()
    while continued is not None and continued.outputs:
        output = continued.outputs.popleft()
        if generation is not None:
            generation.count(output, is_known=True)
        yield output
    if generation is not None:
        yield from generation.held()
