"""LMI's output formats: one object at the end, a line or an event for each token, or raw text."""

from __future__ import annotations

from json.encoder import encode_basestring
from math import isfinite
from typing import TYPE_CHECKING, Final

from lmi_backend.clients.form import on_one_line
from lmi_backend.clients.lmi.formats.answers import (
    Answers,
    Json,
    dump,
    log,
    sendable,
    token_json,
    token_object,
    token_texts,
)
from lmi_backend.errors import LMI_ERROR, LmiError, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lmi_backend.clients.lmi.formats.requested import Format, RequestedAnswer
    from lmi_backend.generation import Delta

NO_TOKEN: Final = -1
"""The id of a text or an end that has no token."""


class WholeJson:
    """`json`: one object when all has come; a list of them where `inputs` was one."""

    content_type = "application/json"
    is_by_token = False

    def __init__(self, requested: RequestedAnswer) -> None:
        self._requested = requested
        self._answers = Answers(requested)

    def write(self, deltas: Sequence[Delta]) -> str:
        for delta in deltas:
            self._answers[delta.index].add(delta, token_texts(delta))
        if not self._answers.are_complete:
            return ""
        objects = self._answers.whole()
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
        self._first = self.answers[0]
        self._has_others = requested.answers > 1
        self._has_index = requested.dialect == "async" or self._has_others
        self._end = ', "generated_text": null, "details": null' * (requested.dialect == "async")
        """What an object of the middle has after its token."""
        before, after = self._frame
        index = '"index": 0, ' * self._has_index
        self._head = f'{before}{{{index}"token": {{"id": '
        self._number = f', "{"logprob" if self._is_tgi else "log_prob"}": '
        self._tail = f"}}{self._end}}}{after}"

    def write(self, deltas: Sequence[Delta]) -> str:
        before, after = self._frame
        return "".join([f"{before}{t}{after}" for delta in deltas for t in self._texts(delta)])

    def fail(self, error: LmiError) -> str:
        before, after = self._frame
        return f"{before}{dump(error_object(error, self._requested))}{after}"

    def _texts(self, delta: Delta) -> list[str]:
        """Return the JSON for each token, and one for a text or an end without any."""
        requested, texts = self._requested, token_texts(delta)
        self.answers[delta.index].add(delta, texts)
        if delta.tokens and not delta.is_last:
            index = f'"index": {delta.index}, ' if self._has_index else ""
            return [
                f'{{{index}"token": {token_json(token, text, requested)}{self._end}}}'
                for token, text in zip(delta.tokens, texts, strict=False)
            ]
        return [dump(item) for item in self._objects(delta, texts)]

    def line(self, delta: Delta) -> bytes | None:
        """Return what `write` makes of a token in the middle of an only answer; else None.

        Most of a stream is that, and this takes a third of the time. `note` must follow where the
        client gets it.
        """
        if len(delta.tokens) != 1 or delta.finish_reason is not None or self._has_others:
            return None
        (token,) = delta.tokens
        if token.is_special or token.logprob is None:
            return None
        text = encode_basestring(delta.text)
        number = token.logprob if isfinite(token.logprob) else log(token)
        line = f'{self._head}{token.id}, "text": {text}{self._number}{number!r}{self._tail}'
        # Looked for here: calls are what a token costs.
        data = line.encode("utf-8", "replace")
        return on_one_line(data) if b"\xe2\x80" in data or b"\xc2\x85" in data else data

    def note(self, delta: Delta) -> None:
        """Note that a client has got the line of a delta."""
        self._first.add(delta, (delta.text,))

    def _objects(self, delta: Delta, texts: Sequence[str]) -> Iterator[Json]:
        tokens = [
            token_object(token, text, self._requested)
            for token, text in zip(delta.tokens, texts, strict=False)
        ]
        if not tokens and (delta.text or delta.is_last):
            name = "logprob" if self._is_tgi else "log_prob"
            tokens = [{"id": NO_TOKEN, "text": delta.text, name: None}]
        for position, token in enumerate(tokens, start=1):
            yield self._object(delta, token, is_last=delta.is_last and position == len(tokens))

    @property
    def _is_tgi(self) -> bool:
        return self._requested.tgi_compat or self._requested.dialect == "async"

    def _object(self, delta: Delta, token: Json, *, is_last: bool) -> Json:
        requested = self._requested
        item: Json = {}
        if self._has_index:
            item["index"] = delta.index
        item["token"] = token
        if is_last:
            item["generated_text"] = self.answers.text(delta.index)
            if requested.details:
                item["details"] = self.answers.details(delta.index, with_tokens=False)
        if requested.dialect == "async":
            item = {"generated_text": None, "details": None} | item
            item = {name: item[name] for name in ("index", "token", "generated_text", "details")}
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
        return sendable("".join(texts))

    def fail(self, error: LmiError) -> str:
        return ""


def error_object(error: LmiError, requested: RequestedAnswer) -> Json:
    """Return what LMI writes where an answer fails after it has begun."""
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
    """Return the format of a name; empty chooses by whether the answer streams.

    Raises:
        RequestError: there is none of that name.
    """
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
