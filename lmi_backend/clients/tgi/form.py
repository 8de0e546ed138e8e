"""Answers as the server of Text Generation Inference writes them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.clients.form import EVENTS, JSON, Ending
from lmi_backend.clients.lmi.formats.answers import (
    Answers,
    PartialAnswer,
    dump,
    finish_word,
    log,
    token_texts,
)
from lmi_backend.clients.tgi.errors import tgi_failure
from lmi_backend.errors import LmiError
from lmi_backend.generation import Delta

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lmi_backend.clients.lmi.formats.requested import RequestedAnswer
    from lmi_backend.generation import Chunk, Token

_Json = dict[str, Any]
_NO_TOKEN: Final[_Json] = {"id": 0, "logprob": 0.0, "special": False}
"""For text that came without one; its clients want a number."""


class TgiForm:
    """One object, or an event a token.

    Args:
        is_list: the object is wanted in a list.
    """

    is_failed = False

    def __init__(self, requested: RequestedAnswer, *, is_list: bool) -> None:
        self.status, self.is_over = 200, False
        self.headers: Mapping[str, str] = {"content-type": EVENTS if requested.stream else JSON}
        self._requested, self._is_list = requested, is_list
        self._answers = Answers(requested)
        self._events = 0

    def write(self, chunks: list[Chunk]) -> bytes:
        events = ""
        for chunk in chunks:
            if isinstance(chunk, Delta):
                texts = token_texts(chunk)
                self._answers[chunk.index].add(chunk, texts)
                if self._requested.stream:
                    events += "".join(map(_event, self._tokens(chunk, texts)))
        self.is_over = self._answers.are_complete
        if self._requested.stream or not self.is_over:
            return events.encode()
        return dump([self._whole()] if self._is_list else self._whole()).encode()

    def taken(self) -> Delta | None:
        """See `Restorable`."""
        return self._answers.taken()

    def restore(self, before: Delta, num_events: int) -> None:
        """See `Restorable`."""
        self._answers.restore(before)
        self._events = num_events

    def failure(self, error: LmiError) -> Ending:
        return Ending(_event(json.loads(tgi_failure(error).data)).encode(), is_end=True)

    def _tokens(self, delta: Delta, texts: Sequence[str]) -> Iterator[_Json]:
        pairs = list(zip(delta.tokens, texts, strict=False))
        tokens = [_token(*pair) for pair in pairs]
        tops = [token.top for token, _ in pairs]
        if not tokens and (delta.text or delta.is_last):
            tokens, tops = [{**_NO_TOKEN, "text": delta.text}], [()]
        for place, (token, top) in enumerate(zip(tokens, tops, strict=True), start=1):
            self._events += 1
            item: _Json = {"index": self._events, "token": token}
            if self._requested.top_n_tokens:
                item["top_tokens"] = [_token(other, other.text) for other in top]
            is_last = delta.is_last and place == len(tokens)
            item["generated_text"] = self._answers.text(delta.index) if is_last else None
            item["details"] = self._end(delta) if is_last and self._requested.details else None
            yield item

    def _end(self, delta: Delta) -> _Json:
        return {
            "finish_reason": finish_word(delta, self._requested),
            "generated_tokens": self._answers[delta.index].num_tokens,
            "seed": self._requested.seed,
            "input_length": delta.num_prompt_tokens,
        }

    def _whole(self) -> _Json:
        body = {"generated_text": self._answers.text(0)}
        if not (self._requested.details or self._requested.decoder_input_details):
            return body
        details = self._details(self._answers[0])
        if self._requested.n > 1:
            details["best_of_sequences"] = [
                {"generated_text": self._answers.text(index)} | self._details(self._answers[index])
                for index in range(1, self._requested.n)
            ]
        return {**body, "details": details}

    def _details(self, answer: PartialAnswer) -> _Json:
        last = answer.last or Delta(finish_reason="error")
        details: _Json = {
            "finish_reason": finish_word(last, self._requested),
            "generated_tokens": answer.num_tokens,
            "seed": self._requested.seed,
            "prefill": [
                {"id": token.id, "text": token.text, "logprob": log(token)}
                for token in answer.prompt_tokens
            ],
            "tokens": [_token(token, text) for token, text in answer.tokens],
        }
        if self._requested.top_n_tokens:
            details["top_tokens"] = [
                [_token(other, other.text) for other in token.top] for token, _ in answer.tokens
            ]
        return details


def _token(token: Token, text: str) -> _Json:
    return {"id": token.id, "text": text, "logprob": log(token), "special": token.is_special}


def _event(item: _Json) -> str:
    return f"data:{dump(item)}\n\n"
