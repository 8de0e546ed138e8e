"""Turn vLLM's RequestOutput into our deltas."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.errors import EngineError, RequestError
from lmi_backend.generation import Delta, FinishReason, GenerateRequest, Token
from lmi_backend.token_ids import pack

if TYPE_CHECKING:
    from lmi_backend.engines.vllm.inside.new_logprobs import NewLogprobs, Position

_log = logging.getLogger(__name__)

NOTHING_FITS = "fit no text of this model, or could not be compiled"
"""Structured outputs with which vLLM fails before it has a token."""
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
    """Reads the outputs of one request."""

    def __init__(self, tokenizer: Any, request: GenerateRequest) -> None:
        self.is_whole = not request.stream
        """Whether each answer comes as one delta."""
        self.sends_ids = False
        """Whether deltas carry ids."""
        self._may_fit_nothing = bool(request.sampling.extra.get("structured_outputs"))
        self.wants_tokens = request.logprobs is not None
        """Whether deltas carry tokens with their log probabilities."""
        self._num_prompt_tokens = 0
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
                if self._may_fit_nothing:
                    raise RequestError(NOTHING_FITS, field="structured_outputs")
                raise EngineError("vLLM failed on the request; its log says why")
            self._may_fit_nothing = self._may_fit_nothing and not ids
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
                delta.prompt_tokens = self._prompt_tokens(output)
            yield delta

    def of_new_tokens(
        self,
        text: str,
        ids: Sequence[int],
        positions: Sequence[Position],
        logprobs: NewLogprobs | None,
    ) -> Delta:
        """Return the delta of new tokens in the middle of a stream; vLLM has made an output before.

        Args:
            text: that they add.
            ids: of the tokens.
            positions: their candidates, if the request wants them.
            logprobs: what has read these.
        """
        packed, count = pack(ids) if self.sends_ids else b"", self._num_prompt_tokens
        if logprobs is None:
            return Delta(text, len(ids), num_prompt_tokens=count, ids=packed)
        tokens: tuple[Token, ...]
        if len(ids) == 1 and type(alone := positions[0]) is tuple:
            logprob, rank, own = alone
            tokens = (Token(ids[0], own, logprob, rank, ids[0] in self._special),)
            self._sums[0] += logprob
        else:
            tokens = tuple(map(self._chosen, ids, positions))
            self._sums[0] += sum(each.logprob or 0.0 for each in tokens)
        total = logprobs.cumulative
        return Delta(text, len(ids), None, None, count, 0, tokens, (), total, None, packed)

    def _chosen(self, token_id: int, position: Position) -> Token:
        """Return a new token."""
        if isinstance(position, dict):
            return self._token(token_id, position, self._alternatives)
        logprob, rank, own = position
        return Token(token_id, own, logprob, rank, token_id in self._special)

    def _add_tokens(self, delta: Delta, answer: Any, ids: Sequence[int]) -> None:
        if answer.logprobs is None and ids:
            raise EngineError("vLLM gives no log probabilities with its tokens")
        delta.tokens = tuple(
            self._token(token_id, logprobs, self._alternatives)
            for token_id, logprobs in zip(ids, _plain(answer.logprobs or ()), strict=False)
        )
        # A release that leaves it out leaves its sum to us.
        self._sums[answer.index] += sum(each.logprob or 0.0 for each in delta.tokens)
        delta.cumulative_logprob = getattr(answer, "cumulative_logprob", self._sums[answer.index])

    def _prompt_tokens(self, output: Any) -> tuple[Token, ...]:
        ids: Sequence[int] = output.prompt_token_ids
        alternatives = self._prompt_alternatives or 0
        return tuple(
            self._token(token_id, logprobs, alternatives) if logprobs else self._plain(token_id)
            for token_id, logprobs in zip(ids, output.prompt_logprobs, strict=False)
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
