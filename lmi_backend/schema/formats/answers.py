"""Gather the answers to a body, and write them as one object each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lmi_backend.schema.formats.chunks import Json, finish_word, token_object, token_texts

if TYPE_CHECKING:
    from lmi_backend.generation import Delta, Token
    from lmi_backend.schema.formats.requested import RequestedAnswer


@dataclass
class Answer:
    """All of one answer so far."""

    index: int
    texts: list[str] = field(default_factory=list)
    tokens: list[tuple[Token, str]] = field(default_factory=list)
    prompt_tokens: tuple[Token, ...] = ()
    num_tokens: int = 0
    last: Delta | None = None

    def add(self, delta: Delta) -> None:
        """Take the next chunk."""
        self.texts.append(delta.text)
        self.tokens += zip(delta.tokens, token_texts(delta), strict=False)
        self.prompt_tokens += delta.prompt_tokens
        self.num_tokens += delta.num_tokens
        self.last = delta


class Answers:
    """The answers to one body."""

    def __init__(self, requested: RequestedAnswer) -> None:
        self._requested = requested
        self._answers = [Answer(index) for index in range(requested.answers)]

    def __getitem__(self, index: int) -> Answer:
        return self._answers[index]

    @property
    def are_complete(self) -> bool:
        """Whether each has ended."""
        return all(answer.last is not None and answer.last.is_last for answer in self._answers)

    def whole(self) -> list[Json]:
        """Return an object for each prompt; its further answers are in the details."""
        n = self._requested.n
        return [self._object(index) for index in range(0, len(self._answers), n)]

    def text(self, index: int) -> str:
        """Return an answer's whole text."""
        return self._requested.prefix(index) + "".join(self._answers[index].texts)

    def details(self, index: int, *, with_tokens: bool = True) -> Json:
        """Return the details of one answer."""
        requested, answer = self._requested, self._answers[index]
        if answer.last is None:
            return {}
        details: Json = {
            "finish_reason": finish_word(answer.last, requested),
            "generated_tokens": answer.num_tokens,
        }
        if requested.dialect == "async":
            details["seed"] = requested.seed
        else:
            details["inputs"] = requested.prompts[index // requested.n]
        if requested.decoder_input_details or (requested.dialect == "async" and with_tokens):
            details["prefill"] = [
                token_object(token, token.text, requested) for token in answer.prompt_tokens
            ]
        if with_tokens:
            details["tokens"] = [
                token_object(token, text, requested) for token, text in answer.tokens
            ]
            if requested.top_n_tokens:
                details["top_tokens"] = [
                    [token_object(other, other.text, requested) for other in token.top]
                    for token, _ in answer.tokens
                ]
        elif requested.dialect == "async":
            details["input_length"] = answer.last.num_prompt_tokens
        return details

    def _object(self, index: int) -> Json:
        answer: Json = {"generated_text": self.text(index)}
        if self._requested.details or self._requested.n > 1:
            details = self.details(index)
            if self._requested.n > 1:
                details["best_of_sequences"] = [
                    {"generated_text": self.text(other)} | self.details(other)
                    for other in range(index + 1, index + self._requested.n)
                ]
            answer["details"] = details
        return answer
