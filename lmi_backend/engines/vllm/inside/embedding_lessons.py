"""Learn from vLLM's own answers to bodies of embeddings what all of one kind have alike."""

from __future__ import annotations

import contextvars
import inspect
import secrets
from contextlib import aclosing
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lmi_backend.engines.vllm.inside import names
from lmi_backend.engines.vllm.inside.chat_lessons import AnswerId
from lmi_backend.engines.vllm.inside.event_layouts import EventLayout
from lmi_backend.engines.vllm.inside.outputs import length
from lmi_backend.engines.vllm.inside.vector_texts import WRITERS
from lmi_backend.unreadable import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence

    from lmi_backend.generation import HttpChunk

Input = str | list[int]
Further = tuple[tuple[Any, ...], dict[str, Any]]
"""Arguments of vLLM's renderer besides the prompts."""

PROMPTS: Final = "prompts"
LENGTH: Final = "content-length"
_OK: Final = 200
_IDS: Final = "prompt_token_ids"
_USUAL: Final = {"prompt", "pooling_params", "request_id"}
_COUNTS: Final = ("prompt_tokens", "total_tokens")
_EVENT: Final = (b"data: ", b"\n\n")
"""What is around an answer where its layout is looked for."""
_SHOWN: Final = 200


@dataclass(frozen=True)
class LearntEmbeddings:
    """What is the same for all bodies that differ in their inputs only (`EmbeddingLesson`)."""

    rendering: Further
    params: Any
    """vLLM's."""
    suffixes: tuple[str, ...]
    """What the id of each request has after that of the answer."""
    answer_id: AnswerId
    headers: Mapping[str, str]
    layout: EventLayout
    write: Callable[[Any], bytes]
    """Writes a vector."""

    def body(self, answer_id: str, created: int, outputs: Sequence[Any]) -> bytes:
        """Return an answer.

        Args:
            answer_id: its id.
            created: its time.
            outputs: of the engine.

        Raises:
            Exception: an output is not as earlier ones were.
        """
        tokens = b"%d" % _num_tokens(outputs)
        values = dict.fromkeys(_COUNTS, tokens)
        values |= {"id": msgspec.json.encode(answer_id), "created": b"%d" % created}
        for index, output in enumerate(outputs):
            values[_gap(index)] = self.write(output.outputs.data)
        first, *parts = self.layout.parts
        pairs = zip(self.layout.gaps, parts, strict=True)
        return first + b"".join([values[name] + part for name, part in pairs])


class Rendered(NamedTuple):
    """A prompt that vLLM's renderer has made."""

    prompt: dict[str, Any]
    """Of what, as it was before."""
    further: Further
    made: Any
    was: Any
    """What it was when it was made."""


def copies(prompts: Any) -> list[dict[str, Any]]:
    """Return prompts as they are before the renderer changes them; nothing if they are no dicts."""
    return [dict(each) for each in prompts] if all(isinstance(e, dict) for e in prompts) else []


def rendered_of(
    prompts: Sequence[dict[str, Any]], further: Further, found: Any
) -> Iterator[Rendered]:
    """Yield what is to be noted of prompts, besides those that are no lists of tokens."""
    for prompt, made in zip(prompts, found, strict=False):
        if isinstance(made, dict) and isinstance(made.get(_IDS), list):
            yield Rendered(prompt, further, made, made | {_IDS: list(made[_IDS])})


def prompt_of(given: Input) -> dict[str, Any]:
    """Return an input as vLLM's server hands it to the renderer."""
    return {"prompt": given} if isinstance(given, str) else {_IDS: given}


def num_ids(prompt: Mapping[str, Any]) -> int:
    """Return how many tokens a rendered prompt has."""
    return len(prompt[_IDS])


class _Call(NamedTuple):
    """A call of the engine."""

    arguments: dict[str, Any]
    params: Any
    """As they were then."""
    rendered: Rendered | None
    """What the prompt is, if that is known."""


class EmbeddingLesson:
    """One answer of vLLM's server that is looked at while it is made.

    Args:
        inputs: of its body.
        request_id: of its request; empty if it has none.
    """

    def __init__(self, inputs: Sequence[Input], request_id: str) -> None:
        self._prompts, self._request_id = [prompt_of(each) for each in inputs], request_id
        self._rendered: list[Rendered] = []
        self._calls: list[_Call] = []
        self._outputs: dict[int, Any] = {}
        self._answer: list[HttpChunk] = []

    def note_rendered(self, rendered: Rendered) -> None:
        """Note what the renderer has made, in a thread of vLLM's, of this body or another."""
        self._rendered.append(rendered)

    def encoded(self, encode: Callable[..., Any], given: Any, named: dict[str, Any]) -> Any:
        """Call the engine for an input, and note its output."""
        self._calls.append(self._call(given, named))
        return self._noted(encode(*given, **named), len(self._calls) - 1)

    def _call(self, given: Any, named: dict[str, Any]) -> _Call:
        try:
            bound = inspect.signature(names.AsyncLLM.encode).bind(None, *given, **named).arguments
            call = dict(list(bound.items())[1:])
            found = [each for each in tuple(self._rendered) if each.made is call["prompt"]]
            is_as_made = bool(found) and found[0].made == found[0].was
            return _Call(call, copy(call["pooling_params"]), found[0] if is_as_made else None)
        except Exception:  # noqa: BLE001  it is vLLM's server that answers
            return _Call({}, None, None)

    async def _noted(self, outputs: Any, place: int) -> AsyncGenerator[Any, None]:
        async with aclosing(outputs) as found:
            async for output in found:
                self._outputs[place] = output
                yield output

    def note_answer(self, chunk: HttpChunk) -> None:
        """Note a piece of the answer."""
        self._answer.append(chunk)

    def learnt(self) -> LearntEmbeddings | None:
        """Return what is to be learnt; None if the answer is an error or one of another kind.

        Raises:
            LookupError: vLLM's server answers by other ways than are known.
        """
        if [(each.status, each.is_last) for each in self._answer] != [(_OK, True)]:
            return None
        (answer,), num = self._answer, len(self._prompts)
        if not len(self._calls) == len(self._outputs) == num:
            raise LookupError(f"it calls AsyncLLM.encode {len(self._calls)} times for {num}")
        _, params, rendered = self._calls[0]
        for own, call in zip(self._prompts, self._calls, strict=True):
            if rendered is None or call.rendered is None or call.rendered.prompt != own:
                raise LookupError("the engine gets no prompt that render_cmpl has made of an input")
            is_same = call.rendered.further == rendered.further and call.params == params
            if not is_same or call.arguments.keys() < _USUAL:
                raise LookupError("inputs of one body are handled in several ways")
            if any(each for name, each in call.arguments.items() if name not in _USUAL):
                return None
        outputs = [self._outputs[place] for place in range(num)]
        answer_id, layout, write = _read(answer.data, outputs)
        ids = [call.arguments["request_id"] for call in self._calls]
        made = AnswerId.of(answer_id, self._request_id)
        if rendered is None or made is None or not all(each.startswith(answer_id) for each in ids):
            raise LookupError(f"an answer has the id {answer_id}, its requests {ids}"[:_SHOWN])
        suffixes = tuple(each.removeprefix(answer_id) for each in ids)
        headers = dict(answer.headers)
        if LENGTH in headers:
            headers[LENGTH] = ""
        return LearntEmbeddings(rendered.further, params, suffixes, made, headers, layout, write)


def _read(data: bytes, outputs: Sequence[Any]) -> tuple[str, EventLayout, Callable[[Any], bytes]]:
    """Return the id of an answer, its layout, and what writes its vectors.

    Raises:
        LookupError: none of this is known.
    """
    for write in WRITERS:
        marks = [secrets.token_hex(16) for _ in outputs]
        found = _replaced(data, write, outputs, marks)
        if not found:
            continue
        try:
            value = msgspec.json.decode(found)
            usage, created, answer_id = value["usage"], value["created"], value["id"]
        except (*UNREADABLE, KeyError, TypeError):
            break
        places: dict[str, tuple[tuple[str | int, ...], Any]] = {
            "id": (("id",), answer_id),
            "created": (("created",), created),
            **{name: (("usage", name), _num_tokens(outputs)) for name in _COUNTS},
        }
        for index, mark in enumerate(marks):
            places[_gap(index)] = (("data", index, "embedding"), mark)
        same = {name: usage[name] for name in usage if usage[name] == 0 and name not in _COUNTS}
        places |= {name: (("usage", name), 0) for name in same}
        layout = EventLayout.of(_EVENT[0] + found + _EVENT[1], places)
        if layout is not None and type(created) is int and isinstance(answer_id, str):
            first, *parts, last = layout.filled(same).parts
            parts = [first.removeprefix(_EVENT[0]), *parts, last.removesuffix(_EVENT[1])]
            return answer_id, EventLayout(tuple(parts), layout.filled(same).gaps), write
    raise LookupError(f"an answer is written otherwise: {data[:_SHOWN].decode(errors='replace')}")


def _replaced(
    data: bytes, write: Callable[[Any], bytes], outputs: Sequence[Any], marks: Sequence[str]
) -> bytes:
    """Return an answer with marks in the place of its vectors; nothing if it has other texts."""
    parts, end = [], 0
    try:
        for output, mark in zip(outputs, marks, strict=True):
            text = write(output.outputs.data)
            start = data.index(text, end)
            parts += [data[end:start], msgspec.json.encode(mark)]
            end = start + len(text)
    except Exception:  # noqa: BLE001  vectors may be of another kind
        return b""
    return b"".join([*parts, data[end:]])


def _num_tokens(outputs: Sequence[Any]) -> int:
    return sum(length(each.prompt_token_ids) for each in outputs)


def _gap(index: int) -> str:
    return f"vector {index}"


lessons: contextvars.ContextVar[EmbeddingLesson | None] = contextvars.ContextVar(
    "embedding_lessons", default=None
)
"""What is learnt from the answer of this task."""
