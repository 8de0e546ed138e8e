"""Keep the text of each token that vLLM decodes for log probabilities.

vLLM decodes each candidate of each position by a call of its own, and a text depends on nothing but
its token. So each token of the vocabulary is decoded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lmi_backend.engines.vllm.inside import names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Decode = Callable[..., list[str]]

_FUNCTION: Final = "convert_ids_list_to_tokens"
_TEXT: Final = "Once there was a robot, and it was happy: ja, là, 小さい."


class TokenTexts:
    """Stands in for vLLM's function that returns the texts of single tokens.

    Args:
        decode: that function.
        vocabulary: the most texts that are kept.
    """

    def __init__(self, decode: Decode, vocabulary: int) -> None:
        self.decode, self._vocabulary = decode, vocabulary
        self._tokenizer: Any = None
        """The first that is given; an older vLLM has others for adapters."""
        self._known: dict[int, str] = {}

    def __call__(
        self, tokenizer: Any, token_ids: Sequence[int], *more: Any, **named: Any
    ) -> list[str]:
        """Return the text of each token: a new list, because vLLM changes it."""
        if self._tokenizer is None:
            self._tokenizer = tokenizer
        if tokenizer is self._tokenizer and not more and not named:
            known = self._known
            try:
                return [known[token] for token in token_ids]
            except KeyError:
                self._learn(token_ids)
        return self.decode(tokenizer, token_ids, *more, **named)

    def known_of(self, tokenizer: Any) -> Mapping[int, str]:
        """Return the texts of a tokenizer that are kept, also those that will be."""
        return self._known if tokenizer is self._tokenizer else {}

    @property
    def is_used(self) -> bool:
        """Whether vLLM has called it."""
        return self._tokenizer is not None

    def _learn(self, token_ids: Sequence[int]) -> None:
        for token in token_ids:
            if token not in self._known and len(self._known) < self._vocabulary:
                (self._known[token],) = self.decode(self._tokenizer, [token])


def of_vllm() -> Decode | None:
    """Return vLLM's function that returns the texts of single tokens; None where there is none."""
    try:
        return getattr(names.logprobs, _FUNCTION, None)
    except names.MissingNameError:
        return None


def is_unused() -> bool:
    """Tell whether the texts are kept, and vLLM has called for none."""
    function = of_vllm()
    return isinstance(function, TokenTexts) and not function.is_used


def attach(tokenizer: Any, vocabulary: int) -> None:
    """Have the texts of tokens kept from now on.

    Args:
        tokenizer: the engine's.
        vocabulary: how many tokens the model has.

    Raises:
        AttributeError: vLLM has no such function.
        ValueError: a token has another text next to others than alone.
    """
    module = names.logprobs
    decode = getattr(module, _FUNCTION)
    if isinstance(decode, TokenTexts):
        decode = decode.decode
    tried, ids = TokenTexts(decode, vocabulary), list(tokenizer.encode(_TEXT))
    theirs = decode(tokenizer, ids)
    # The first call learns the texts.
    for _ in range(2):
        if (made := tried(tokenizer, ids)) != theirs:
            raise ValueError(f"{made!r} and not {theirs!r}")
    setattr(module, _FUNCTION, TokenTexts(decode, vocabulary))
