"""Write the events of a chat whose layouts are known, from the engine's outputs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from lmi_backend.engines.vllm.inside.event_layouts import DONE
from lmi_backend.engines.vllm.inside.outputs import ids_of, prompt_length
from lmi_backend.generation import HttpChunk
from lmi_backend.token_ids import pack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lmi_backend.engines.vllm.inside.event_layouts import ChatLayouts, EventLayout

_encode = msgspec.json.encode


class UnknownEventError(Exception):
    """An output has an event whose layout is not known."""


class FailedOutputError(Exception):
    """The engine has failed on a request, and an output says so.

    Args:
        output: of the engine.
    """

    def __init__(self, output: Any) -> None:
        super().__init__("the engine failed on the request")
        self.output = output


class StreamedChat:
    """Makes the chunks of one answer; `output_hook.generate` reads outputs with it.

    Args:
        layouts: of the events.
        headers: of the answer.
        answer_id: the member `id` of all events.
        sends_ids: whether chunks carry the ids of their tokens.
    """

    is_whole = False
    wants_tokens = False

    def __init__(
        self, layouts: ChatLayouts, headers: dict[str, str], answer_id: str, *, sends_ids: bool
    ) -> None:
        self._layouts, self._headers, self._sends_ids = layouts, headers, sends_ids
        self._stream = {"id": answer_id, "created": int(time.time())}
        self._content = _ends(layouts.content, self._stream)
        self.num_tokens = 0
        """Of the answer so far."""
        self._num_prompt_tokens = 0
        self.is_begun = False
        """Whether any chunk was made."""

    def deltas(self, output: Any) -> Iterator[HttpChunk]:
        """Yield the chunk of an output of vLLM; none if it has no event.

        Raises:
            FailedOutputError: vLLM has failed on the request.
            UnknownEventError: it has another event than those of other answers.
        """
        (answer,) = output.outputs
        if answer.finish_reason == "error":
            raise FailedOutputError(output)
        self._num_prompt_tokens = prompt_length(output, self._num_prompt_tokens)
        ids = ids_of(answer)
        if not self.is_begun and not answer.text and not ids:
            if answer.finish_reason is not None:
                raise UnknownEventError
            return
        if answer.finish_reason is None:
            yield self._chunk(self._event(answer.text), ids)
            return
        chunk = self._chunk(self._layouts.last.event(self._last_values(answer)), ids)
        if (usage := self._layouts.usage) is not None:
            chunk.data += usage.event(self._stream | self._counts())
        chunk.data += DONE
        chunk.is_last = True
        yield chunk

    def of_new_tokens(
        self, text: str, ids: Sequence[int], _positions: Sequence[Any], _logprobs: Any
    ) -> HttpChunk:
        """Return the chunk of new tokens in the middle of a stream."""
        if self._content is None or not self.is_begun:
            return self._chunk(self._event(text), ids)
        # Most chunks are made here, so nothing is called that can be said in a line.
        self.num_tokens += len(ids)
        before, after = self._content
        return HttpChunk(
            before + _encode(text) + after,
            num_tokens=len(ids),
            num_prompt_tokens=self._num_prompt_tokens,
            ids=pack(ids) if self._sends_ids else b"",
        )

    def _event(self, text: str) -> bytes:
        if self._content is None:
            raise UnknownEventError
        before, after = self._content
        return before + _encode(text) + after

    def _chunk(self, data: bytes, ids: Sequence[int]) -> HttpChunk:
        self.num_tokens += len(ids)
        chunk = HttpChunk(data, num_tokens=len(ids), num_prompt_tokens=self._num_prompt_tokens)
        if self._sends_ids:
            chunk.ids = pack(ids)
        if not self.is_begun:
            self.is_begun = True
            # The ids of the first token come with the role.
            chunk.data, chunk.headers = self._layouts.role.event(self._stream) + data, self._headers
        return chunk

    def _last_values(self, answer: Any) -> dict[str, Any]:
        end = {"finish_reason": answer.finish_reason, "stop_reason": answer.stop_reason}
        return self._stream | {"text": answer.text} | end

    def _counts(self) -> dict[str, int]:
        prompt, completion = self._num_prompt_tokens, self.num_tokens
        total = prompt + completion
        return {
            "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total
        }  # fmt: skip


def _ends(layout: EventLayout | None, stream: dict[str, Any]) -> tuple[bytes, bytes] | None:
    """Return the bytes before and after the text."""
    if layout is None:
        return None
    before, after = layout.filled(stream).parts
    return before, after
