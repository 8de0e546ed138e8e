"""Read the log probabilities of new tokens past what vLLM does for each output.

vLLM makes objects of each candidate, looks at the tokens before it, and slices what it keeps. Most
candidates have a text of their own, and in the middle of an answer nobody looks back.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lmi_backend.engines.vllm.inside import packed_logprobs
from lmi_backend.engines.vllm.inside.token_texts import TokenTexts, of_vllm

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_INCOMPLETE: Final = "\ufffd"
"""At the end of a text: bytes of a character that has more, whose text vLLM looks for."""


class Candidate(NamedTuple):
    """A token at a position, under vLLM's names."""

    logprob: float
    rank: int
    decoded_token: str


Position = dict[int, Candidate] | tuple[float, int, str]
"""Candidates by their ids. The generated one is first; what a candidate has, where it is alone."""


class NewLogprobs:
    """Reads the log probabilities of one request. `of` makes one.

    Args:
        processor: the LogprobsProcessor of the request, in vLLM.
        texts: vLLM's function that returns the texts of single tokens.
    """

    def __init__(self, processor: Any, texts: Callable[..., list[str]]) -> None:
        self._processor, self._texts = processor, texts
        self._tokenizer, self._width = processor.tokenizer, processor.num_logprobs + 1
        self._packed = packed_logprobs.in_use()
        self._known: Mapping[int, str] = {}
        if isinstance(texts, TokenTexts):
            self._known = texts.known_of(self._tokenizer)

    @classmethod
    def of(cls, state: Any) -> NewLogprobs | None:
        """Return what reads those of a RequestState of vLLM; None if vLLM must."""
        processor = getattr(state, "logprobs_processor", None)
        texts = of_vllm()
        is_known = (
            type(getattr(processor, "logprobs", None)) is list
            and type(getattr(processor, "cumulative_logprob", None)) is float
            and type(count := getattr(processor, "num_logprobs", None)) is int
            and count >= 0
            and getattr(processor, "tokenizer", None) is not None
        )
        return cls(processor, texts) if is_known and texts is not None else None

    @property
    def cumulative(self) -> float:
        """Sum of the log probabilities of all tokens so far."""
        total: float = self._processor.cumulative_logprob
        return total

    def read(self, ids: Sequence[int], lists: Any) -> list[Position] | None:
        """Return the candidates of each new token; None, with nothing noted, if vLLM must read.

        Args:
            ids: of the tokens.
            lists: vLLM's LogprobsLists of them, perhaps packed; older releases have lists in it,
                not arrays.
        """
        if self._packed is not None and type(lists) is tuple:
            one = self._packed.alone(lists) if self._width == 1 and len(ids) == 1 else None
            if one is not None:
                return self._alone(ids[0], one)
            lists = self._packed.lists(lists)
        values: Any = getattr(lists, "logprobs", None)
        if not hasattr(values, "tolist") or len(values) != len(ids):
            return None
        found: list[Position] = []
        rows = lists.logprob_token_ids.tolist(), values.tolist(), lists.sampled_token_ranks.tolist()
        for token, candidates, logprobs, rank in zip(ids, *rows, strict=True):
            if candidates[0] != token:
                return None
            del candidates[self._width :]
            if self._width == 1:
                # Most requests want the log probability of the token alone.
                if (text := self._text(token)) is None:
                    return None
                found.append((logprobs[0], rank, text))
                continue
            texts = self._texts(self._tokenizer, candidates)
            for text in texts:
                if text.endswith(_INCOMPLETE):
                    return None
            ranks = chain((rank,), range(1, self._width))
            found.append(
                dict(zip(candidates, map(Candidate, logprobs, ranks, texts), strict=False))
            )
        for token, row in zip(ids, rows[1], strict=True):
            self._note(token, row[0])
        return found

    def _alone(self, token: int, found: tuple[int, float, int]) -> list[Position] | None:
        """Return what `read` does of a token that is alone."""
        candidate, logprob, rank = found
        text = self._known.get(token) or self._text(token)
        if candidate != token or text is None or text.endswith(_INCOMPLETE):
            return None
        # As `_note`.
        processor = self._processor
        processor.logprobs.append({token: None})
        processor.cumulative_logprob += logprob
        return [(logprob, rank, text)]

    def _text(self, token: int) -> str | None:
        """Return a token's text; None if it may have another one next to others."""
        if (text := self._known.get(token)) is None:
            (text,) = self._texts(self._tokenizer, [token])
        return None if text.endswith(_INCOMPLETE) else text

    def _note(self, token: int, logprob: float) -> None:
        # Where vLLM looks back, it wants the id alone.
        processor = self._processor
        processor.logprobs.append({token: None})
        processor.cumulative_logprob += logprob
