"""Turn vLLM's RequestOutput into our deltas."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from lmi_backend.generation import Delta, Token

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence

    from lmi_backend.generation import GenerateRequest


class OutputReader:
    """Reads the outputs of one request."""

    def __init__(self, tokenizer: Any, request: GenerateRequest) -> None:
        self._wants_tokens = request.logprobs is not None
        self._alternatives = request.logprobs or 0
        self._prompt_alternatives = request.prompt_logprobs
        self._special = (
            frozenset(getattr(tokenizer, "all_special_ids", ()))
            if self._wants_tokens or request.prompt_logprobs is not None
            else frozenset()
        )

    async def stream(self, stream: AsyncGenerator[Any, None]) -> AsyncGenerator[Delta, None]:
        """Yield the deltas of vLLM's outputs as they come."""
        async with aclosing(stream) as outputs:
            async for output in outputs:
                for delta in self.deltas(output):
                    yield delta

    def hand_on(self, output: Any, take: Callable[[Delta], None]) -> None:
        """Hand on the deltas of one output of vLLM."""
        for delta in self.deltas(output):
            take(delta)

    def deltas(self, output: Any) -> Iterator[Delta]:
        """Return what one output of vLLM adds, a delta for each answer in it."""
        num_prompt_tokens = len(output.prompt_token_ids or ())
        for answer in output.outputs:
            reason = answer.finish_reason
            delta = Delta(
                text=answer.text,
                num_tokens=len(answer.token_ids),
                # vLLM also ends answers it finds repetitive; clients know that as a stop.
                finish_reason="stop" if reason == "repetition" else reason,
                stop_reason=answer.stop_reason,
                num_prompt_tokens=num_prompt_tokens,
                index=answer.index,
            )
            if self._wants_tokens:
                self._add_tokens(delta, answer)
            if self._prompt_alternatives is not None and output.prompt_logprobs:
                delta.prompt_tokens = self._prompt_tokens(output)
            yield delta

    def _add_tokens(self, delta: Delta, answer: Any) -> None:
        delta.tokens = tuple(
            self._token(number, places, self._alternatives)
            for number, places in zip(answer.token_ids, answer.logprobs or (), strict=False)
        )
        delta.cumulative_logprob = answer.cumulative_logprob

    def _prompt_tokens(self, output: Any) -> tuple[Token, ...]:
        ids: Sequence[int] = output.prompt_token_ids
        alternatives = self._prompt_alternatives or 0
        return tuple(
            self._token(number, places or {}, alternatives)
            for number, places in zip(ids, output.prompt_logprobs, strict=False)
        )

    def _token(self, number: int, places: Mapping[int, Any], alternatives: int) -> Token:
        """Read one place: vLLM gives its likeliest tokens and, last or among them, the chosen."""
        chosen = places.get(number)
        best = sorted(places.items(), key=lambda item: item[1].rank or 0)[:alternatives]
        return Token(
            number,
            (chosen.decoded_token or "") if chosen else "",
            chosen.logprob if chosen else None,
            chosen.rank if chosen else None,
            is_special=number in self._special,
            top=tuple(
                Token(
                    other,
                    place.decoded_token or "",
                    place.logprob,
                    place.rank,
                    is_special=other in self._special,
                )
                for other, place in best
            ),
        )
