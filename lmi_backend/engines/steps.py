"""From token ids to deltas, for engines that give ids only: text, stop strings, finish reasons."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from lmi_backend.errors import EngineError
from lmi_backend.generation import Delta, GenerateRequest, Token
from lmi_backend.tokenization import pack, unpack

_UNFINISHED = "\N{REPLACEMENT CHARACTER}"


class StepOutput(NamedTuple):
    """What an engine's step, or several, brought to one answer."""

    ids: Sequence[int] = ()
    """New tokens, the last one of an answer included."""
    tokens: tuple[Token, ...] = ()
    """The same with their log probabilities, where the request wants them."""
    prompt_tokens: tuple[Token, ...] = ()
    is_over: bool = False
    error: Exception | None = None


def given_groups(request: GenerateRequest) -> list[list[int]]:
    """Return the tokens that the client of a request has, as they came; none of one that begins."""
    return unpack(request.continuation.ids) if request.continuation else []


class AnswerDeltas:
    """Makes the deltas of one answer, those that its client has too.

    Args:
        eos_ids: the model's end-of-text tokens; none if they are ignored.
        sends_ids: whether deltas that the client does not have carry ids.
    """

    def __init__(
        self,
        tokenizer: Any,
        request: GenerateRequest,
        num_prompt_tokens: int,
        eos_ids: frozenset[int],
        *,
        sends_ids: bool = False,
    ) -> None:
        self._sends_ids = sends_ids
        self._given = list(chain.from_iterable(given_groups(request)))
        self._sampling = request.sampling
        self._num_prompt_tokens = num_prompt_tokens
        self._eos_ids = eos_ids
        self._text = Detokenizer(
            tokenizer,
            skip_special_tokens=request.sampling.skip_special_tokens,
            spaces_between_special_tokens=request.sampling.spaces_between_special_tokens,
        )
        self._stops = StopStrings(request.sampling.stop, include=request.sampling.include_stop)
        self._count = 0
        self._logprob: float | None = None
        self.is_over = False

    def add(self, step: StepOutput) -> Delta:
        """Return what a step adds to the answer.

        Raises:
            EngineError: its client has another answer.
        """
        delta = Delta(
            num_prompt_tokens=self._num_prompt_tokens,
            tokens=step.tokens,
            prompt_tokens=step.prompt_tokens,
        )
        for token_id in step.ids:
            self._take(token_id, delta)
            if delta.is_last:
                break
        if step.is_over and not delta.is_last:
            delta.finish_reason = "length"
        if delta.is_last:
            # Nothing more can make the held-back text a stop string.
            delta.text += self._stops.rest()
        delta.tokens = delta.tokens[: delta.num_tokens]
        if step.tokens:
            added = sum(token.logprob or 0.0 for token in delta.tokens)
            self._logprob = (self._logprob or 0.0) + added
        delta.cumulative_logprob = self._logprob
        self.is_over = delta.is_last
        if self._count > len(self._given):
            delta.ids = pack(step.ids[: delta.num_tokens]) if self._sends_ids else b""
        elif delta.is_last and step.ids:
            raise EngineError("the answer cannot resume: it has finished on this worker")
        return delta

    def _take(self, token_id: int, delta: Delta) -> None:
        if self._count < len(self._given) and token_id != self._given[self._count]:
            raise EngineError("the answer cannot resume: this worker generated other tokens")
        self._count += 1
        delta.num_tokens += 1
        least = self._sampling.min_tokens
        is_end = token_id in self._eos_ids
        is_stop = token_id in self._sampling.stop_token_ids and self._count >= least
        if is_end or is_stop:
            delta.finish_reason = "stop"
            delta.stop_reason = None if is_end else token_id
            if not self._sampling.include_stop:
                return
        elif self._count >= self._sampling.max_tokens:
            delta.finish_reason = "length"
        text = self._text.add(token_id)
        if self._count <= least:
            # A stop string that ends here ends nothing; one that only begins here may.
            delta.text += self._stops.pass_over(text)
            return
        released, stop = self._stops.feed(text)
        delta.text += released
        if stop:
            delta.finish_reason, delta.stop_reason = "stop", stop


class Detokenizer:
    """Turns ids into text as they come.

    A token's text depends on those before it, and a character may take several tokens. So a short
    window is decoded again with each token, and text that stops within a character is held back.
    """

    _WINDOW = 6

    def __init__(self, tokenizer: Any, **options: bool) -> None:
        self._tokenizer, self._options = tokenizer, options
        self._ids: list[int] = []
        self._start = self._read = 0

    def add(self, token_id: int) -> str:
        """Return the text that a token adds; empty while it is within a character."""
        self._ids.append(token_id)
        read = self._decode(self._ids[self._start : self._read])
        now = self._decode(self._ids[self._start :])
        if len(now) <= len(read) or now.endswith(_UNFINISHED):
            return ""
        self._start = max(0, self._read - self._WINDOW) if self._read else 0
        self._read = len(self._ids)
        return now[len(read) :]

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(ids, **self._options)
        return text


class StopStrings:
    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        self._stops, self._include = stops, include
        self._buffered = ""

    def feed(self, text: str) -> tuple[str, str]:
        """Return the text that can be shown, and the stop string that was found, or empty.

        Of several stop strings the one that is complete first is found. Text that was held back is
        shown before it.
        """
        old = len(self._buffered)
        text = self._buffered + text
        # What ends in the held text was passed over.
        places = [
            (start + len(stop), start, stop)
            for stop in self._stops
            if (start := text.find(stop, max(0, old - len(stop) + 1))) >= 0
        ]
        if not places:
            return self._buffer(text), ""
        end, start, stop = min(places, key=itemgetter(0))
        self._buffered = ""
        return text[: end if self._include else start], stop

    def pass_over(self, text: str) -> str:
        """Return the text that can be shown, with any stop strings that it has."""
        return self._buffer(self._buffered + text)

    def rest(self) -> str:
        rest, self._buffered = self._buffered, ""
        return rest

    def _buffer(self, text: str) -> str:
        """Hold back what may be the beginning of a stop string; return the text before it."""
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._buffered = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """Return how much of the end of a text may be the beginning of a stop string."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if stop.startswith(text[-size:])), 0)
