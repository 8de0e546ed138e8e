"""Gather the answers to a body; write tokens, finish reasons and whole answers as JSON."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.clients.form import on_one_line
from lmi_backend.generation import Delta

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lmi_backend.clients.lmi.formats.requested import RequestedAnswer
    from lmi_backend.generation import Token

Json = dict[str, Any]

_LEGACY: Final = {"stop": "eos_token"}
# JSON has no infinity; vLLM's own server writes this number for a token that cannot be.
_NEVER: Final = -9999.0


@dataclass
class PartialAnswer:
    """All of one answer so far."""

    index: int
    keeps_tokens: bool = True
    texts: list[str] = field(default_factory=list)
    tokens: list[tuple[Token, str]] = field(default_factory=list)
    prompt_tokens: tuple[Token, ...] = ()
    num_tokens: int = 0
    last: Delta | None = None

    def add(self, delta: Delta, texts: Sequence[str]) -> None:
        """Take the next chunk.

        Args:
            delta: the chunk.
            texts: of its tokens (`token_texts`).
        """
        self.texts.append(delta.text)
        if self.keeps_tokens:
            self.tokens += zip(delta.tokens, texts, strict=False)
        self.prompt_tokens += delta.prompt_tokens
        self.num_tokens += delta.num_tokens
        self.last = delta

    def joined(self, *, with_tokens: bool) -> Delta:
        last = self.last or Delta()
        return Delta(
            "".join(self.texts),
            self.num_tokens,
            num_prompt_tokens=last.num_prompt_tokens,
            tokens=tuple(token for token, _ in self.tokens) if with_tokens else (),
            prompt_tokens=self.prompt_tokens,
            cumulative_logprob=last.cumulative_logprob,
        )


class Answers:
    """The answers to one body.

    Args:
        keeps_tokens: whether any object shows the tokens of a whole answer.
    """

    def __init__(self, requested: RequestedAnswer, *, keeps_tokens: bool = True) -> None:
        self._requested = requested
        self._answers = [PartialAnswer(each, keeps_tokens) for each in range(requested.answers)]

    def __getitem__(self, index: int) -> PartialAnswer:
        return self._answers[index]

    @property
    def are_complete(self) -> bool:
        return all(answer.last is not None and answer.last.is_last for answer in self._answers)

    def taken(self) -> Delta | None:
        """Return what has come of an only answer of a stream as one; None if there are several.

        Its tokens are with it only if the end of the stream shows them again.
        """
        if len(self._answers) > 1:
            return None
        return self._answers[0].joined(with_tokens=self._requested.top_n_tokens > 0)

    def restore(self, before: Delta) -> None:
        """Take what has come of an only answer of a stream elsewhere (`taken`)."""
        self._answers[0].add(before, [token.text for token in before.tokens])

    def whole(self) -> list[Json]:
        """Return an object for each prompt; its further answers are in the details."""
        n = self._requested.n
        return [self._object(index) for index in range(0, len(self._answers), n)]

    def text(self, index: int) -> str:
        """Return an answer's whole text."""
        return self._requested.prefix(index) + "".join(self._answers[index].texts)

    def details(self, index: int, *, with_tokens: bool = True) -> Json:
        requested, answer = self._requested, self._answers[index]
        if answer.last is None:
            return {}
        if requested.dialect == "async":
            return self._async_details(answer, answer.last, with_tokens=with_tokens)
        details: Json = {
            "finish_reason": finish_word(answer.last, requested),
            "generated_tokens": answer.num_tokens,
            "inputs": requested.prompts[index // requested.n],
        }
        if with_tokens:
            details["tokens"] = self._tokens(answer)
        if requested.decoder_input_details:
            details["prefill"] = self._prefill(answer)
        if requested.top_n_tokens:
            # The chosen token comes first, whatever its rank.
            details["top_tokens"] = [
                self._top((token, *(each for each in token.top if each.id != token.id)))
                for token, _ in answer.tokens
            ]
        return details

    def _async_details(self, answer: PartialAnswer, last: Delta, *, with_tokens: bool) -> Json:
        requested = self._requested
        reason = {"finish_reason": finish_word(last, requested)}
        seed, count = {"seed": requested.seed}, {"generated_tokens": answer.num_tokens}
        prefill = {"prefill": self._prefill(answer)}
        if not with_tokens:
            wanted = prefill if requested.decoder_input_details else {}
            return reason | seed | count | wanted | {"input_length": last.num_prompt_tokens}
        details: Json = reason | count | seed | prefill | {"tokens": self._tokens(answer)}
        if requested.top_n_tokens:
            details["top_tokens"] = [self._top(token.top) for token, _ in answer.tokens]
        return details

    def _tokens(self, answer: PartialAnswer) -> list[Json]:
        return [token_object(token, text, self._requested) for token, text in answer.tokens]

    def _top(self, tokens: Iterable[Token]) -> list[Json]:
        return [token_object(token, token.text, self._requested) for token in tokens]

    def _prefill(self, answer: PartialAnswer) -> list[Json]:
        """Return the tokens of the prompt; the async handlers leave out one without a number."""
        is_async = self._requested.dialect == "async"
        tokens = answer.prompt_tokens
        return self._top(each for each in tokens if each.logprob is not None or not is_async)

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


def dump(value: object) -> str:
    """Return JSON that can be sent."""
    return _sendable_json(json.dumps(value, ensure_ascii=False))


def _sendable_json(text: str) -> str:
    return on_one_line(text.encode("utf-8", "replace")).decode()


def sendable(text: str) -> str:
    """Return a text as UTF-8 has it: half a character, which an engine may cut, becomes "?"."""
    return text.encode("utf-8", "replace").decode("utf-8")


def finish_word(delta: Delta, requested: RequestedAnswer) -> str | int | None:
    """Return LMI's name for the finish reason of an answer.

    LMI's async handlers write the stop string or id itself, and nothing for an end of text or the
    limit. That is a slip, so those two have the names of the older handlers here.
    """
    if delta.finish_reason == "stop" and delta.stop_reason is not None:
        return delta.stop_reason if requested.dialect == "async" else "stop_sequence"
    return _LEGACY.get(delta.finish_reason or "", delta.finish_reason)


def token_object(token: Token, text: str, requested: RequestedAnswer) -> Json:
    """Return a token as LMI writes it."""
    is_tgi = requested.tgi_compat or requested.dialect == "async"
    members: Json = {"id": token.id, "text": text, "logprob" if is_tgi else "log_prob": log(token)}
    if token.is_special:
        members["special" if requested.tgi_compat else "special_token"] = True
    return members


def token_json(token: Token, text: str, requested: RequestedAnswer) -> str:
    """Return what `dump` makes of `token_object`; most of a stream is written by this alone."""
    is_tgi = requested.tgi_compat or requested.dialect == "async"
    number, value = "logprob" if is_tgi else "log_prob", log(token)
    json_number = "null" if value is None else repr(value)
    special = "special" if requested.tgi_compat else "special_token"
    rest = f', "{special}": true' if token.is_special else ""
    json_text = encode_basestring(text)
    return _sendable_json(
        f'{{"id": {token.id}, "text": {json_text}, "{number}": {json_number}{rest}}}'
    )


def log(token: Token) -> float | None:
    """Return a token's log probability as a number JSON has."""
    if token.logprob is None or math.isfinite(token.logprob):
        return token.logprob
    return _NEVER


def token_texts(delta: Delta) -> list[str]:
    """Return the text of each token; together they are exactly the delta's text.

    A token's own text may differ from what it adds. The last token of an answer may add nothing,
    and a character may take two tokens. Text is held back while a stop string could begin with it.
    Text between two tokens with a text of their own belongs to the last token between them.
    """
    if len(delta.tokens) <= 1:
        return [delta.text]
    added = [token.added for token in delta.tokens if token.added is not None]
    if len(added) == len(delta.tokens):
        return added
    texts = [""] * len(delta.tokens)
    place, silent = 0, -1
    for index, token in enumerate(delta.tokens):
        start = delta.text.find(token.text, place) if silent >= 0 else place
        if not token.text or not delta.text.startswith(token.text, max(start, place)):
            # Special tokens are left out of the text.
            silent = silent if token.is_special else index
            continue
        texts[silent] += delta.text[place:start]
        texts[index], place, silent = token.text, start + len(token.text), -1
    texts[silent] += delta.text[place:]
    return texts
