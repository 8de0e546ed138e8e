"""LMI's answers as it writes them: one object, lines of JSON, events, or raw text."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from lmi_backend.clients.spec import on_one_line
from lmi_backend.errors import LMI_ERROR, LmiError, RequestError
from lmi_backend.generation import Delta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lmi_backend.generation import Token


@dataclass(frozen=True)
class RequestedAnswer:
    """What an LMI body wants of its answer.

    Answers are counted as in `Delta.index`: `n` to the first prompt, then those to the next.
    """

    prompts: tuple[str, ...]
    """Their texts; empty for one that was given as token ids."""
    is_list: bool = False
    """Whether `inputs` was a list: so is the answer."""
    n: int = 1
    stream: bool = False
    details: bool = False
    return_full_text: bool = False
    decoder_input_details: bool = False
    top_n_tokens: int = 0
    seed: int | None = None
    tgi_compat: bool = False
    dialect: Literal["legacy", "async", "tgi"] = "legacy"
    """The last one: as the server of Text Generation Inference writes it."""

    @property
    def answers(self) -> int:
        return len(self.prompts) * self.n

    @property
    def log_word(self) -> str:
        """Name of a token's log probability."""
        return "log_prob" if self.dialect == "legacy" and not self.tgi_compat else "logprob"

    def prefix(self, index: int) -> str:
        """Return what comes before an answer's text: its prompt, if it is wanted back."""
        return self.prompts[index // self.n] if self.return_full_text else ""


class Format(Protocol):
    content_type: str

    @property
    def is_by_token(self) -> bool:
        """Whether each token is shown by itself."""

    def write(self, deltas: Sequence[Delta]) -> str:
        """Return what to write for these deltas; empty if nothing yet."""

    def fail(self, error: LmiError) -> str:
        """Return the last part of a body that fails after a part has been written."""


Json = dict[str, Any]

# JSON has no infinity; vLLM's own server writes this number for a token that cannot be.
_NEVER: Final = -9999.0


@dataclass
class PartialAnswer:
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
        self._answers = [PartialAnswer(keeps_tokens) for _ in range(requested.answers)]

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

    def restore(self, state: Delta) -> None:
        self._answers[0].add(state, [token.text for token in state.tokens])

    def whole(self) -> list[Json]:
        n = self._requested.n
        return [self._object(index) for index in range(0, len(self._answers), n)]

    def text(self, index: int) -> str:
        return self._requested.prefix(index) + "".join(self._answers[index].texts)

    def details(self, index: int, *, with_tokens: bool = True) -> Json:
        requested, answer = self._requested, self._answers[index]
        if answer.last is None:
            return {}
        if requested.dialect != "legacy":
            return self._newer_details(answer, answer.last, with_tokens=with_tokens)
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
                self.top((token, *(each for each in token.top if each.id != token.id)))
                for token, _ in answer.tokens
            ]
        return details

    def _newer_details(self, answer: PartialAnswer, last: Delta, *, with_tokens: bool) -> Json:
        requested = self._requested
        details: Json = {"finish_reason": finish_word(last, requested)}
        seed: Json = {"seed": requested.seed}
        count: Json = {"generated_tokens": answer.num_tokens}
        # LMI's own handlers say the seed first at the end of a stream.
        is_seed_first = requested.dialect == "async" and not with_tokens
        details |= seed | count if is_seed_first else count | seed
        if with_tokens or (requested.decoder_input_details and requested.dialect == "async"):
            details["prefill"] = self._prefill(answer)
        if not with_tokens:
            return details | {"input_length": last.num_prompt_tokens}
        details["tokens"] = self._tokens(answer)
        if requested.top_n_tokens:
            details["top_tokens"] = [self.top(token.top) for token, _ in answer.tokens]
        return details

    def _tokens(self, answer: PartialAnswer) -> list[Json]:
        return [token_object(token, text, self._requested) for token, text in answer.tokens]

    def top(self, tokens: Iterable[Token]) -> list[Json]:
        return [token_object(token, token.text, self._requested) for token in tokens]

    def _prefill(self, answer: PartialAnswer) -> list[Json]:
        """Return the tokens of the prompt; the async handlers leave out one without a number."""
        tokens = answer.prompt_tokens
        if self._requested.dialect == "tgi":
            return [{"id": each.id, "text": each.text, "logprob": log(each)} for each in tokens]
        is_async = self._requested.dialect == "async"
        return self.top(each for each in tokens if each.logprob is not None or not is_async)

    def _object(self, index: int) -> Json:
        answer: Json = {"generated_text": self.text(index)}
        has_others = self._requested.n > 1
        if self._requested.details or (has_others and self._requested.dialect != "tgi"):
            answer["details"] = self.details(index)
            if has_others:
                answer["details"]["best_of_sequences"] = [
                    {"generated_text": self.text(other)} | self.details(other)
                    for other in range(index + 1, index + self._requested.n)
                ]
        return answer


def dump(value: object) -> str:
    return on_one_line(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")).decode()


def legacy_word(delta: Delta) -> str | None:
    """Return the finish reason of an answer as LMI's older handlers and TGI name it."""
    if delta.finish_reason == "stop":
        return "eos_token" if delta.stop_reason is None else "stop_sequence"
    return delta.finish_reason


def finish_word(delta: Delta, requested: RequestedAnswer) -> str | int | None:
    """Return LMI's name for the finish reason of an answer.

    LMI's async handlers write the stop string or id itself, and nothing for an end of text or the
    limit. That is a slip, so those two have the names of the older handlers here.
    """
    if requested.dialect == "async" and delta.finish_reason == "stop":
        return delta.stop_reason if delta.stop_reason is not None else legacy_word(delta)
    return legacy_word(delta)


def token_object(token: Token, text: str, requested: RequestedAnswer) -> Json:
    members: Json = {"id": token.id, "text": text, requested.log_word: log(token)}
    if token.is_special or requested.dialect == "tgi":
        is_tgi = requested.tgi_compat or requested.dialect == "tgi"
        members["special" if is_tgi else "special_token"] = token.is_special
    return members


def log(token: Token) -> float | None:
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


NO_TOKEN: Final = -1
"""The id of a text or an end that has no token."""


class WholeJson:
    """`json`: one object when all has come; a list of them where `inputs` was one."""

    content_type = "application/json"
    is_by_token = False

    def __init__(self, requested: RequestedAnswer) -> None:
        self._requested = requested
        self._answers = Answers(requested)

    def objects(self, deltas: Sequence[Delta]) -> list[Json]:
        """Return what answers each prompt; nothing until all has come."""
        for delta in deltas:
            self._answers[delta.index].add(delta, token_texts(delta))
        return self._answers.whole() if self._answers.are_complete else []

    def write(self, deltas: Sequence[Delta]) -> str:
        if not (objects := self.objects(deltas)):
            return ""
        is_list = self._requested.is_list or self._requested.tgi_compat
        return dump(objects if is_list else objects[0])

    def fail(self, error: LmiError) -> str:
        return dump(error_object(error, self._requested))


class Lines:
    """`jsonlines`: an object for each token; the last one of an answer has its whole text."""

    content_type = "application/jsonlines"
    is_by_token = True
    _frame = "", "\n"
    """What is before and after an object."""

    def __init__(self, requested: RequestedAnswer) -> None:
        self._requested = requested
        self.answers = Answers(requested, keeps_tokens=requested.top_n_tokens > 0)
        self._texts: Sequence[str] = ()
        """Of the last `line`."""
        self.num_objects = 0
        self._is_tgi = requested.dialect == "tgi"
        is_async = requested.dialect == "async"
        self._has_index = is_async or requested.answers > 1
        self._has_others = self._is_tgi or requested.answers > 1
        """Whether it has more than objects as `line` makes them."""
        prefix, after = self._frame
        # Of an object in the middle: what is before its id, its number, and after that.
        index = '"index": 0, ' * self._has_index
        self._head = f'{prefix}{{{index}"token": {{"id": '
        self._number = f', "{requested.log_word}": '
        end = ', "generated_text": null, "details": null' * is_async
        self._tail = f"}}{end}}}{after}"

    def write(self, deltas: Sequence[Delta]) -> str:
        prefix, after = self._frame
        objects = (each for delta in deltas for each in self._objects(delta))
        return "".join([f"{prefix}{dump(each)}{after}" for each in objects])

    def fail(self, error: LmiError) -> str:
        prefix, after = self._frame
        return f"{prefix}{dump(error_object(error, self._requested))}{after}"

    def line(self, delta: Delta) -> bytes | None:
        """Return what `write` makes of tokens in the middle of an only answer; else None.

        Most of a stream is that, and this takes a third of the time. `note` must follow where the
        client gets it.
        """
        if not delta.tokens or delta.finish_reason is not None or self._has_others:
            return None
        lines = ""
        self._texts = (delta.text,) if len(delta.tokens) == 1 else token_texts(delta)
        for token, text in zip(delta.tokens, self._texts, strict=False):
            if token.is_special or token.logprob is None:
                return None
            number = token.logprob if isfinite(token.logprob) else _NEVER
            quoted, end = encode_basestring(text), f"{number!r}{self._tail}"
            lines += f'{self._head}{token.id}, "text": {quoted}{self._number}{end}'
        # Looked for here: calls are what a token costs.
        data = lines.encode("utf-8", "replace")
        return on_one_line(data) if b"\xe2\x80" in data or b"\xc2\x85" in data else data

    def note(self, delta: Delta) -> None:
        self.answers[0].add(delta, self._texts)

    def _objects(self, delta: Delta) -> Iterator[Json]:
        """Yield an object for each token, and one for a text or an end without any."""
        requested, texts = self._requested, token_texts(delta)
        self.answers[delta.index].add(delta, texts)
        tokens = [
            token_object(token, text, requested)
            for token, text in zip(delta.tokens, texts, strict=False)
        ]
        tops = [token.top for token in delta.tokens]
        if not tokens and (delta.text or delta.is_last):
            # Clients of Text Generation Inference want numbers.
            none = (
                {"logprob": 0.0, "special": False} if self._is_tgi else {requested.log_word: None}
            )
            tokens = [{"id": 0 if self._is_tgi else NO_TOKEN, "text": delta.text, **none}]
            tops = [()]
        for position, (token, top) in enumerate(zip(tokens, tops, strict=True), start=1):
            is_last = delta.is_last and position == len(tokens)
            yield self._object(delta, token, top, is_last=is_last)

    def _object(self, delta: Delta, token: Json, top: Iterable[Token], *, is_last: bool) -> Json:
        self.num_objects += 1
        item: Json = {"index": self.num_objects} if self._is_tgi else {}
        if self._has_index:
            item.setdefault("index", delta.index)
        item["token"] = token
        if self._is_tgi and self._requested.top_n_tokens:
            item["top_tokens"] = self.answers.top(top)
        if self._requested.dialect != "legacy":
            item |= {"generated_text": None, "details": None}
        if is_last:
            item["generated_text"] = self.answers.text(delta.index)
            if self._requested.details:
                item["details"] = self.answers.details(delta.index, with_tokens=False)
        return item


class EventLines(Lines):
    """`sse`: the same objects as server-sent events."""

    content_type = "text/event-stream"

    _frame = "data: ", "\n\n"


class RawText:
    """`none`: the text alone."""

    content_type = "text/plain"
    is_by_token = False

    def __init__(self, requested: RequestedAnswer) -> None:
        self._requested = requested
        self._begun: set[int] = set()

    def write(self, deltas: Sequence[Delta]) -> str:
        texts = []
        for delta in deltas:
            if delta.index not in self._begun:
                self._begun.add(delta.index)
                texts.append(self._requested.prefix(delta.index))
            texts.append(delta.text)
        # Half a character, which an engine may cut, becomes "?".
        return "".join(texts).encode("utf-8", "replace").decode()

    def fail(self, error: LmiError) -> str:
        return ""


def error_object(error: LmiError, requested: RequestedAnswer) -> Json:
    if requested.dialect == "async":
        return {"error": {"message": str(error), "code": LMI_ERROR}}
    return {"error": str(error), "code": LMI_ERROR}


_FORMS: Final[dict[str, Callable[[RequestedAnswer], Format]]] = {
    "json": WholeJson,
    "jsonlines": Lines,
    "sse": EventLines,
    "none": RawText,
}
NAMES: Final = tuple(_FORMS)
"""Accepted values of `output_formatter`."""


def make_format(name: str, requested: RequestedAnswer) -> Format:
    """Return the format of a name; empty: as usual. Raises RequestError: it is unknown."""
    if not name:
        streamed = "sse" if requested.tgi_compat else "jsonlines"
        name = streamed if requested.stream else "json"
    # LMI's names for chat; chat bodies have OpenAI's form, and others the same as without.
    name = name.removesuffix("_chat")
    if name not in _FORMS:
        accepted = ", ".join(NAMES)
        field = "output_formatter"
        raise RequestError("is not a formatter", field=field, value=name, accepted=accepted)
    return _FORMS[name](requested)
