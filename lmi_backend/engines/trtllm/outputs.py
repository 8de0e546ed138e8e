"""From our Sampling to TensorRT-LLM's SamplingParams, and from its RequestOutput to Deltas."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from lmi_backend.engines.steps import Detokenizer
from lmi_backend.engines.trtllm import compat
from lmi_backend.errors import RequestError
from lmi_backend.generation import Delta, FinishReason, GenerateRequest, Token
from lmi_backend.tokenization import pack

# None means the same to the library; without temperature, top_k and top_p it is greedy.
_SAME = (
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "ignore_eos",
    "skip_special_tokens",
    "spaces_between_special_tokens",
)


_ONCE: Final = (
    "repetition_penalty", "presence_penalty", "frequency_penalty", "seed", "stop",
    "stop_token_ids", "bad_words", "extra",
)  # fmt: skip
"""What may look at the tokens of an answer in another way than at those of a prompt."""


def can_go_on(request: GenerateRequest) -> bool:
    """Tell whether a stream could resume with its tokens as a part of the prompt."""
    is_plain = request.n == 1 and request.logprobs is None and request.prompt_logprobs is None
    return is_plain and not any(getattr(request.sampling, name) for name in _ONCE)


def sampling_params(request: GenerateRequest, num_given: int = 0) -> Any:
    """Return the SamplingParams of one request; the library writes into it.

    Args:
        num_given: tokens of the answer that are given as a part of the prompt.

    Raises:
        RequestError: the library refuses a value.
    """
    sampling = request.sampling
    extra = dict(sampling.extra)
    structure = extra.pop("structured_outputs", None)
    try:
        return compat.SamplingParams(
            **{name: getattr(sampling, name) for name in _SAME},
            top_k=None if sampling.top_k is None else max(0, sampling.top_k),
            n=request.n,
            # Its own default is always the same seed.
            seed=sampling.seed if sampling.seed is not None else secrets.randbits(63),
            max_tokens=sampling.max_tokens - num_given,
            min_tokens=max(0, sampling.min_tokens - num_given) or None,
            stop=list(sampling.stop) or None,
            stop_token_ids=list(sampling.stop_token_ids) or None,
            include_stop_str_in_output=sampling.include_stop,
            bad=list(sampling.bad_words) or None,
            logprobs=_num_logprobs(request.logprobs),
            prompt_logprobs=_num_logprobs(request.prompt_logprobs),
            guided_decoding=compat.GuidedDecodingParams(**structure) if structure else None,
            **extra,
        )
    except (TypeError, ValueError) as error:
        problem = f"are refused by TensorRT-LLM: {error}"
        raise RequestError(problem, field="sampling parameters") from error


def _num_logprobs(alternatives: int | None) -> int | None:
    """Return the count that the library wants, for which 0 means none, not the token alone."""
    return None if alternatives is None else max(1, alternatives)


_REASONS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "timeout": "length",
    "cancelled": "abort",
}


class ResultReader:
    """Reads the outputs of one request; each output holds everything so far.

    What an output calls its difference speaks of one answer only; lengths speak of all.
    """

    def __init__(
        self,
        tokenizer: Any,
        request: GenerateRequest,
        num_prompt_tokens: int,
        *,
        sends_ids: bool = False,
    ) -> None:
        self._tokenizer, self._request = tokenizer, request
        self._num_prompt_tokens, self._sends_ids = num_prompt_tokens, sends_ids
        self._words: Detokenizer | None = None
        """Of an answer that resumes: the library takes its tokens so far for the prompt's."""
        self._seen = [(0, 0)] * request.n
        self._ended = [False] * request.n
        self._has_prompt = request.prompt_logprobs is None

    def given(self, groups: Sequence[Sequence[int]]) -> Iterator[Delta]:
        """Yield deltas of what the client has, as they came; the answer resumes after them."""
        sampling = self._request.sampling
        words = self._words = Detokenizer(
            self._tokenizer,
            skip_special_tokens=sampling.skip_special_tokens,
            spaces_between_special_tokens=sampling.spaces_between_special_tokens,
        )
        for ids in groups:
            text = "".join(map(words.add, ids))
            yield Delta(text, len(ids), num_prompt_tokens=self._num_prompt_tokens)

    def deltas(self, output: Any) -> Iterator[Delta]:
        """Yield what an output adds, a delta for each answer that it changed."""
        for index, answer in enumerate(output.outputs[: self._request.n]):
            if self._ended[index]:
                continue
            _, tokens = self._seen[index]
            reason = _REASONS.get(answer.finish_reason or "")
            if len(answer.token_ids) == tokens and not reason:
                # Text without a token waits for the next.
                continue
            yield self._delta(index, answer, output)
            self._seen[index] = (len(answer.text), len(answer.token_ids))
            self._ended[index] = reason is not None

    def _delta(self, index: int, answer: Any, output: Any) -> Delta:
        text, tokens = self._seen[index]
        ids = answer.token_ids[tokens:]
        delta = Delta(
            text="".join(map(self._words.add, ids)) if self._words else answer.text[text:],
            num_tokens=len(ids),
            finish_reason=_REASONS.get(answer.finish_reason or ""),
            stop_reason=answer.stop_reason,
            num_prompt_tokens=self._num_prompt_tokens,
            index=index,
            ids=pack(ids) if self._sends_ids else b"",
        )
        if self._request.logprobs is not None and answer.logprobs:
            delta.tokens = self._tokens(ids, answer.logprobs[tokens:], self._request.logprobs)
            delta.cumulative_logprob = answer.cumulative_logprob
        if not self._has_prompt and answer.prompt_logprobs:
            self._has_prompt = True
            delta.prompt_tokens = self._prompt_tokens(output.prompt_token_ids, answer)
        return delta

    def _prompt_tokens(self, ids: Sequence[int], answer: Any) -> tuple[Token, ...]:
        first = Token(ids[0], self._text(ids[0]))
        wanted = self._request.prompt_logprobs or 0
        return (first, *self._tokens(ids[1:], answer.prompt_logprobs, wanted))

    def _tokens(
        self, ids: Sequence[int], logprobs: Sequence[Any], alternatives: int
    ) -> tuple[Token, ...]:
        pairs = zip(ids, logprobs, strict=False)
        return tuple(self._token(token_id, logprob, alternatives) for token_id, logprob in pairs)

    def _token(
        self, token_id: int, logprobs: Mapping[int, Any] | float, alternatives: int
    ) -> Token:
        if isinstance(logprobs, float):
            return Token(token_id, self._text(token_id), logprobs)
        own = logprobs.get(token_id)
        best = sorted(logprobs.items(), key=lambda item: item[1].rank or 0)[:alternatives]
        return Token(
            token_id,
            self._text(token_id),
            own.logprob if own else None,
            own.rank if own else None,
            top=tuple(Token(n, self._text(n), p.logprob, p.rank) for n, p in best),
        )

    def _text(self, token_id: int) -> str:
        text: str = self._tokenizer.decode([token_id])
        return text
