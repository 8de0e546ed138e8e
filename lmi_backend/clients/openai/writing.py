"""Write OpenAI's answers, whole or as server-sent events."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from lmi_backend.generation import Delta, Token

DONE: Final = b"data: [DONE]\n\n"


class Writer:
    """Writes the answer to one body. `ChatWriter` and `CompletionWriter` know the format."""

    KIND = ""
    STREAM_KIND = ""
    PREFIX = ""

    def __init__(self, model: str, *, echo: Sequence[str] = (), wants_logprobs: bool) -> None:
        self._id, self._created = f"{self.PREFIX}-{uuid.uuid4().hex}", int(time.time())
        self._model, self._echo = model, echo
        self.wants_logprobs = wants_logprobs
        self._begun: set[int] = set()

    def whole(self, answers: Sequence[Delta], usage: dict[str, int]) -> bytes:
        """Return the answer as one body."""
        choices = [self._choice(answer) for answer in answers]
        return self._encode(self.KIND, choices, usage)

    def event(self, delta: Delta) -> bytes:
        choices = [self._part(delta)]
        return b"data: " + self._encode(self.STREAM_KIND, choices) + b"\n\n"

    def usage_event(self, usage: dict[str, int]) -> bytes:
        """Return the event with the counts of tokens."""
        return b"data: " + self._encode(self.STREAM_KIND, [], usage) + b"\n\n"

    def _encode(
        self, kind: str, choices: list[dict[str, object]], usage: dict[str, int] | None = None
    ) -> bytes:
        # In vLLM's order, by which an answer that resumes is given its name again.
        body = {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "choices": choices,
        }
        return msgspec.json.encode(body if usage is None else body | {"usage": usage})

    def _choice(self, answer: Delta) -> dict[str, object]:
        raise NotImplementedError

    def _part(self, delta: Delta) -> dict[str, object]:
        raise NotImplementedError

    def _is_first(self, delta: Delta) -> bool:
        is_first = delta.index not in self._begun
        self._begun.add(delta.index)
        return is_first


class ChatWriter(Writer):
    """/v1/chat/completions."""

    KIND = "chat.completion"
    STREAM_KIND = "chat.completion.chunk"
    PREFIX = "chatcmpl"

    def _choice(self, answer: Delta) -> dict[str, object]:
        message = {"role": "assistant", "content": answer.text}
        return self._around("message", message, answer)

    def _part(self, delta: Delta) -> dict[str, object]:
        role = {"role": "assistant"} if self._is_first(delta) else {}
        return self._around("delta", role | {"content": delta.text}, delta)

    def _around(self, name: str, content: Mapping[str, object], delta: Delta) -> dict[str, object]:
        tokens = [self._token(each) for each in delta.tokens]
        return {
            "index": delta.index,
            name: content,
            "logprobs": {"content": tokens} if self.wants_logprobs else None,
            "finish_reason": delta.finish_reason,
            "stop_reason": delta.stop_reason,
        }

    def _token(self, token: Token) -> dict[str, object]:
        return _token(token) | {"top_logprobs": [_token(each) for each in token.top]}


class CompletionWriter(Writer):
    """/v1/completions."""

    KIND = STREAM_KIND = "text_completion"
    PREFIX = "cmpl"

    def __init__(self, model: str, *, echo: Sequence[str] = (), wants_logprobs: bool) -> None:
        super().__init__(model, echo=echo, wants_logprobs=wants_logprobs)
        self._lengths: dict[int, int] = {}
        """Characters of each answer's tokens so far."""

    def _choice(self, answer: Delta) -> dict[str, object]:
        return self._part(answer)

    def _part(self, delta: Delta) -> dict[str, object]:
        before = self._echo[delta.index] if self._echo and self._is_first(delta) else ""
        return {
            "index": delta.index,
            "text": before + delta.text,
            "logprobs": self._lists(delta) if self.wants_logprobs else None,
            "finish_reason": delta.finish_reason,
            "stop_reason": delta.stop_reason,
        }

    def _lists(self, delta: Delta) -> dict[str, object]:
        """Return the tokens of a delta, those of the prompt first where it is shown."""
        tokens = (*delta.prompt_tokens, *delta.tokens) if self._echo else delta.tokens
        offsets = []
        for token in tokens:
            offsets.append(start := self._lengths.get(delta.index, 0))
            self._lengths[delta.index] = start + len(token.text)
        return {
            "tokens": [token.text for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [_top(token) for token in tokens],
            "text_offset": offsets,
        }


def usage_of(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """Return OpenAI's counts of tokens."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def _token(token: Token) -> dict[str, object]:
    return {
        "token": token.text,
        "logprob": token.logprob,
        "bytes": list(token.text.encode("utf-8", "replace")),
    }


def _top(token: Token) -> dict[str, float | None] | None:
    """Return the alternatives to a token; nothing is known of a prompt's first."""
    return None if token.logprob is None else {each.text: each.logprob for each in token.top}
