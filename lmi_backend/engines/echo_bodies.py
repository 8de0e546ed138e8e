"""OpenAI's and Anthropic's bodies, as far as the echo reads and writes them."""

from __future__ import annotations

import itertools
import re
import time
from typing import Annotated, Final

import msgspec

from lmi_backend.clients.openai_bodies import DONE
from lmi_backend.clients.spec import named_event
from lmi_backend.generation import Delta, GenerateRequest, Sampling
from lmi_backend.outline import LARGE, fill, in_turns, outline

_WORD: Final = re.compile(r"\s*\S+|\s+")
"""A token."""


def first_words(text: str, most: int) -> list[str]:
    """Return the first tokens of a text, which may be of any length."""
    return [match[0] for match in itertools.islice(_WORD.finditer(text), most)]


_MOST: Final = 1 << 16
"""Tokens of an answer to which no limit is given."""
_Count = Annotated[int, msgspec.Meta(ge=1)]


class _Message(msgspec.Struct):
    content: str = ""


class OpenAiBody(msgspec.Struct):
    """A body of chat or completion, as far as an echo looks at it."""

    model: str = ""
    messages: list[_Message] = []
    prompt: str = ""
    stream: bool = False
    max_tokens: _Count | None = None
    max_completion_tokens: _Count | None = None
    created: int = msgspec.field(default_factory=lambda: int(time.time()))

    def request(self) -> GenerateRequest:
        """Return the prompt, or the last message, to be said once where no limit is given."""
        prompt = self.messages[-1].content if self.messages else self.prompt
        most = self.max_tokens or self.max_completion_tokens or len(first_words(prompt, _MOST))
        return GenerateRequest(prompt, Sampling(max_tokens=most))

    def event(self, request_id: str, delta: Delta, count: int) -> bytes:
        return b"data: " + self._object(request_id, delta, count, is_chunk=True) + b"\n\n"

    def end(self, request_id: str, delta: Delta, count: int) -> bytes:
        """Return the last bytes of a stream, which follow its last event."""
        return DONE

    def answer(self, request_id: str, delta: Delta, count: int) -> bytes:
        """Return a whole answer."""
        return self._object(request_id, delta, count, is_chunk=False)

    def _object(self, request_id: str, delta: Delta, count: int, *, is_chunk: bool) -> bytes:
        message = {"role": "assistant", "content": delta.text}
        choice: dict[str, object] = {"index": 0, "finish_reason": delta.finish_reason}
        choice |= {"delta" if is_chunk else "message": message} if self.messages else {}
        choice |= {} if self.messages else {"text": delta.text}
        kind = "chat.completion" if self.messages else "text_completion"
        usage = {
            "prompt_tokens": delta.num_prompt_tokens,
            "completion_tokens": count,
            "total_tokens": delta.num_prompt_tokens + count,
        }
        return msgspec.json.encode(
            {
                "id": request_id,
                "object": kind + ".chunk" * (is_chunk and bool(self.messages)),
                "created": self.created,
                "model": self.model,
                "choices": [choice],
                "usage": usage,
            }
        )


class AnthropicBody(OpenAiBody):
    """A body of Anthropic's messages."""

    def event(self, request_id: str, delta: Delta, count: int) -> bytes:
        """Return the events of a part; before the first one the message begins."""
        # What a client has already is written again without a count.
        is_first = count <= max(delta.num_tokens, 1)
        begin = self._begin(request_id, delta) if is_first else b""
        text = {"type": "text_delta", "text": delta.text}
        return begin + _named("content_block_delta", index=0, delta=text)

    def end(self, request_id: str, delta: Delta, count: int) -> bytes:
        """Return the last events of the message; all of them where it has no text."""
        why = {"stop_reason": _stop_reason(delta), "stop_sequence": None}
        return b"".join(
            (
                b"" if count else self._begin(request_id, delta),
                _named("content_block_stop", index=0),
                _named("message_delta", delta=why, usage={"output_tokens": count}),
                _named("message_stop"),
            )
        )

    def answer(self, request_id: str, delta: Delta, count: int) -> bytes:
        """Return a whole message."""
        content = [{"type": "text", "text": delta.text}]
        message = self._message(request_id, content, delta.num_prompt_tokens, count)
        return msgspec.json.encode(message | {"stop_reason": _stop_reason(delta)})

    def _begin(self, request_id: str, delta: Delta) -> bytes:
        message = self._message(request_id, [], delta.num_prompt_tokens, 0)
        block = {"type": "text", "text": ""}
        return _named("message_start", message=message) + _named(
            "content_block_start", index=0, content_block=block
        )

    def _message(
        self, request_id: str, content: list[dict[str, str]], num_prompt_tokens: int, count: int
    ) -> dict[str, object]:
        return {
            "id": request_id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": num_prompt_tokens, "output_tokens": count},
        }


def _named(kind: str, **members: object) -> bytes:
    return named_event(kind, msgspec.json.encode({"type": kind, **members}))


def _stop_reason(delta: Delta) -> str:
    return "max_tokens" if delta.finish_reason == "length" else "end_turn"


async def read_body(data: bytes, kind: type[OpenAiBody] = OpenAiBody) -> OpenAiBody:
    """Return a body; a large one is read in turns.

    Raises:
        UNREADABLE, ValueError: it cannot be read.
    """
    if len(data) <= LARGE:
        return msgspec.json.decode(data, type=kind)
    outlined = await in_turns(outline(data))
    value = await in_turns(fill(msgspec.json.decode(outlined.text), outlined, data))
    return msgspec.convert(value, type=kind)
