"""One object at the end, a line for each token, or an event for each token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmi_backend.schema.formats.answers import Answers
from lmi_backend.schema.formats.chunks import (
    Json,
    dump,
    sendable,
    token_object,
    token_texts,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lmi_backend.errors import LmiError
    from lmi_backend.generation import Delta
    from lmi_backend.schema.formats.asked import Asked


class WholeJson:
    """`json`: one object when all has come; a list of them where `inputs` was one."""

    content_type = "application/json"

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._answers = Answers(asked)

    def write(self, deltas: Sequence[Delta]) -> str:
        """See `Format`."""
        for delta in deltas:
            self._answers[delta.index].add(delta)
        if not self._answers.are_complete:
            return ""
        objects = self._answers.whole()
        is_list = self._asked.is_list or self._asked.tgi_compat
        return dump(objects if is_list else objects[0])

    def fail(self, error: LmiError) -> str:
        """See `Format`."""
        return dump(error_object(error, self._asked))


class Lines:
    """`jsonlines`: an object for each token; the last one of an answer has its whole text."""

    content_type = "application/jsonlines"

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._answers = Answers(asked)

    def write(self, deltas: Sequence[Delta]) -> str:
        """See `Format`."""
        return "".join(self._frame(item) for delta in deltas for item in self._objects(delta))

    def fail(self, error: LmiError) -> str:
        """See `Format`."""
        return self._frame(error_object(error, self._asked))

    def _frame(self, item: Json) -> str:
        return dump(item) + "\n"

    def _objects(self, delta: Delta) -> Iterator[Json]:
        """Return an object for each token, and one for a text or an end without any."""
        self._answers[delta.index].add(delta)
        tokens = [
            token_object(token, text, self._asked)
            for token, text in zip(delta.tokens, token_texts(delta), strict=False)
        ]
        if not tokens and (delta.text or delta.is_last):
            name = "logprob" if self._is_tgi else "log_prob"
            tokens = [{"id": None, "text": delta.text, name: None}]
        for place, token in enumerate(tokens, start=1):
            yield self._object(delta, token, is_last=delta.is_last and place == len(tokens))

    @property
    def _is_tgi(self) -> bool:
        return self._asked.tgi_compat or self._asked.dialect == "async"

    def _object(self, delta: Delta, token: Json, *, is_last: bool) -> Json:
        asked = self._asked
        item: Json = {}
        if asked.dialect == "async" or asked.answers > 1:
            item["index"] = delta.index
        item["token"] = token
        if is_last:
            item["generated_text"] = self._answers.text(delta.index)
            if asked.details:
                item["details"] = self._answers.details(delta.index, with_tokens=False)
        if asked.dialect == "async":
            item = {"generated_text": None, "details": None} | item
            item = {name: item[name] for name in ("index", "token", "generated_text", "details")}
        return item


class Events(Lines):
    """`sse`: the same objects as server-sent events."""

    content_type = "text/event-stream"

    def _frame(self, item: Json) -> str:
        return f"data: {dump(item)}\n\n"


class RawText:
    """`none`: the text alone."""

    content_type = "text/plain"

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._begun: set[int] = set()

    def write(self, deltas: Sequence[Delta]) -> str:
        """See `Format`."""
        texts = []
        for delta in deltas:
            if delta.index not in self._begun:
                self._begun.add(delta.index)
                texts.append(self._asked.prefix(delta.index))
            texts.append(delta.text)
        return sendable("".join(texts))

    def fail(self, error: LmiError) -> str:
        """See `Format`."""
        return ""


def error_object(error: LmiError, asked: Asked) -> Json:
    """Return what LMI writes where an answer fails after it has begun."""
    if asked.dialect == "async":
        return {"error": {"message": str(error), "code": 424}}
    return {"error": str(error), "code": 424}
