"""Turn vLLM's RequestOutput into our deltas."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from lmi_backend.errors import EngineError, LmiError, RequestError
from lmi_backend.generation import Delta, FinishReason, GenerateRequest, Token
from lmi_backend.token_ids import pack

if TYPE_CHECKING:
    from lmi_backend.engines.vllm.inside.answers import Piece
    from lmi_backend.engines.vllm.inside.token_logprobs import Position

_log = logging.getLogger(__name__)

_NO_LOGPROBS: Final = "vLLM gives no log probabilities with its tokens"
_REASONS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "abort": "abort",
    "error": "error",
    # vLLM also ends answers it finds repetitive; clients know that as a stop.
    "repetition": "stop",
}
"""The reasons of vLLM, as clients know them; an unknown one is added when it is first seen."""


class OutputReader:
    """Makes the deltas of one request, of vLLM's outputs or of an answer of our own."""

    writes_known = False

    def __init__(self, tokenizer: Any, request: GenerateRequest) -> None:
        self.is_whole = not request.stream
        """Whether each answer comes as one delta."""
        self.sends_ids = False
        """Whether deltas carry ids."""
        self._is_structured = bool(request.sampling.extra.get("structured_outputs"))
        self.wants_tokens = request.logprobs is not None
        """Whether deltas carry tokens with their log probabilities."""
        self._num_prompt_tokens = self._num_tokens = 0
        self._prompt_ids: Sequence[int] | None = None
        self._sums: defaultdict[int, float] = defaultdict(float)
        """Of each answer's log probabilities."""
        self._alternatives = request.logprobs or 0
        self._prompt_alternatives = request.prompt_logprobs
        self._tokenizer = tokenizer
        self._special = (
            frozenset(getattr(tokenizer, "all_special_ids", ()))
            if self.wants_tokens or request.prompt_logprobs is not None
            else frozenset()
        )

    def begin(self, prompt_ids: Sequence[int] | None, num_prompt_tokens: int) -> None:
        """Note the prompt of an answer of our own."""
        self._prompt_ids, self._num_prompt_tokens = prompt_ids, num_prompt_tokens

    def chunk(self, piece: Piece) -> Delta:
        """Return the delta of tokens of our own answer.

        Raises:
            EngineError: vLLM gives no log probabilities with them.
        """
        ids = piece.token_ids
        delta = Delta(
            piece.text,
            len(ids),
            _reason(piece.finish_reason),
            piece.stop_reason,
            self._num_prompt_tokens,
            piece.index,
            ids=pack(ids) if self.sends_ids else b"",
        )
        if self.wants_tokens:
            if piece.logprobs is None or len(piece.logprobs) < len(ids):
                raise EngineError(_NO_LOGPROBS)
            delta.tokens = tuple(map(self._chosen, ids, piece.logprobs))
            if piece.texts is not None:
                delta.tokens = tuple(map(_adding, delta.tokens, piece.texts))
            delta.cumulative_logprob = piece.cumulative_logprob
        return delta

    def add_prompt(self, chunk: Delta, logprobs: Any) -> None:
        """Add the prompt's tokens to a delta."""
        if self._prompt_alternatives is not None:
            chunk.prompt_tokens = self._prompt_tokens(self._prompt_ids or (), logprobs)

    def failure(self, num_tokens: int, num_last: int = 0) -> LmiError:
        """Return why vLLM has failed on the request; the arguments are those of `unfit`."""
        if not self._is_structured:
            return EngineError("vLLM failed on the request; its log says why")
        return RequestError(unfit(num_tokens, num_last), field="structured_outputs")

    def deltas(self, output: Any) -> Iterator[Delta]:
        """Yield what one output of vLLM adds, a delta for each answer in it.

        Raises:
            EngineError: vLLM has failed on the request, as its own server reports it.
            RequestError: it has no token that fits the request's structured outputs.
        """
        num_prompt_tokens = prompt_length(output, self._num_prompt_tokens)
        self._num_prompt_tokens = num_prompt_tokens
        for answer in output.outputs:
            reason, ids = _reason(answer.finish_reason), ids_of(answer)
            if reason == "error":
                raise self.failure(self._num_tokens, len(ids))
            self._num_tokens += len(ids)
            delta = Delta(
                text=answer.text or "",
                num_tokens=len(ids),
                finish_reason=reason,
                stop_reason=answer.stop_reason,
                num_prompt_tokens=num_prompt_tokens,
                index=int(answer.index),
            )
            if self.sends_ids:
                delta.ids = pack(ids)
            if self.wants_tokens:
                self._add_tokens(delta, answer, ids)
            if self._prompt_alternatives is not None and output.prompt_logprobs:
                delta.prompt_tokens = self._prompt_tokens(
                    output.prompt_token_ids, output.prompt_logprobs
                )
            yield delta

    def _chosen(self, token_id: int, position: Position) -> Token:
        """Return a new token."""
        if not isinstance(position, tuple):
            return self._token(token_id, position, self._alternatives)
        logprob, rank, own = position
        return Token(token_id, own, logprob, rank, token_id in self._special)

    def _add_tokens(self, delta: Delta, answer: Any, ids: Sequence[int]) -> None:
        if answer.logprobs is None and ids:
            raise EngineError(_NO_LOGPROBS)
        delta.tokens = tuple(
            self._token(token_id, logprobs, self._alternatives)
            for token_id, logprobs in zip(ids, _plain(answer.logprobs or ()), strict=False)
        )
        # A release that leaves it out leaves its sum to us.
        self._sums[answer.index] += sum(each.logprob or 0.0 for each in delta.tokens)
        delta.cumulative_logprob = getattr(answer, "cumulative_logprob", self._sums[answer.index])

    def _prompt_tokens(self, ids: Sequence[int], found: Sequence[Any]) -> tuple[Token, ...]:
        alternatives = self._prompt_alternatives or 0
        return tuple(
            self._token(token_id, logprobs, alternatives) if logprobs else self._plain(token_id)
            for token_id, logprobs in zip(ids, found, strict=False)
        )

    def _plain(self, token_id: int) -> Token:
        """Return the first token of a prompt: vLLM gives its id alone."""
        text = self._tokenizer.decode([token_id]) if self._tokenizer is not None else ""
        return Token(token_id, text, is_special=token_id in self._special)

    def _token(self, token_id: int, logprobs: Mapping[int, Any], alternatives: int) -> Token:
        """Return the token at a position, for which vLLM gives the likeliest and the chosen one."""
        chosen = logprobs.get(token_id)
        best: Sequence[tuple[int, Any]] = ()
        if alternatives:
            best = sorted(logprobs.items(), key=lambda item: item[1].rank or 0)[:alternatives]
        return Token(
            token_id,
            (chosen.decoded_token or "") if chosen else "",
            chosen.logprob if chosen else None,
            chosen.rank if chosen else None,
            is_special=token_id in self._special,
            top=tuple(
                Token(
                    other,
                    logprob.decoded_token or "",
                    logprob.logprob,
                    logprob.rank,
                    is_special=other in self._special,
                )
                for other, logprob in best
            ),
        )


def ids_of(answer: Any) -> list[int]:
    """Return the ids of an answer's tokens; a release may have arrays there."""
    ids = answer.token_ids
    is_plain = type(ids) is list and (not ids or type(ids[0]) is int)
    return ids if is_plain else [int(each) for each in ids]


def unfit(num_tokens: int, num_last: int = 0) -> str:
    """Return what is wrong with structured outputs on which vLLM fails.

    Args:
        num_tokens: that fit, before the output that fails.
        num_last: in that output. vLLM hands on the token that it has refused.
    """
    if num_tokens := num_tokens + max(0, num_last - 1):
        return f"stopped fitting any text of this model after {num_tokens} tokens"
    return "fit no text of this model, or could not be compiled"


def length(ids: Any) -> int:
    """Return how many ids there are; vLLM has none, a list, or what a later release has."""
    return 0 if ids is None else len(ids)


def prompt_length(output: Any, known: int) -> int:
    """Return how many tokens a prompt has; a release may tell it with the first output alone.

    Args:
        output: of the request.
        known: what the outputs before have told.
    """
    return known if output.prompt_token_ids is None else len(output.prompt_token_ids)


def _adding(token: Token, text: str) -> Token:
    return replace(token, added=text)


def _reason(found: Any) -> FinishReason | None:
    """Return why an answer is finished.

    Raises:
        EngineError: what vLLM gives is no name of a reason.
    """
    if found is None:
        return None
    word = str(found)
    if word not in _REASONS:
        if not word.isidentifier():
            raise EngineError(f"vLLM gives no reason why an answer is finished: {found!r}")
        _log.warning("vLLM finishes answers for a reason that is not known: %s", word)
        _REASONS[word] = "stop"
    return _REASONS[word]


def _plain(positions: Any) -> Any:
    """Return candidates whose numbers are of Python's own kinds."""
    first = next(iter(positions), None) or {}
    if all(type(each.logprob) is float for each in first.values()):
        return positions
    return [{key: _plain_candidate(each) for key, each in found.items()} for found in positions]


def _plain_candidate(found: Any) -> Any:
    rank = None if found.rank is None else int(found.rank)
    return SimpleNamespace(
        logprob=float(found.logprob), rank=rank, decoded_token=found.decoded_token
    )
