"""The log probabilities of one answer's tokens, each with its text.

vLLM's own processor makes objects of each candidate and decodes each by a call. Most candidates
have a text of their own, which is the same wherever they stand. The others are left to it.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lmi_backend.engines.vllm.inside import names

if TYPE_CHECKING:
    from collections.abc import Sequence

_INCOMPLETE: Final = "\ufffd"
"""At the end of a text: bytes of a character that has more, whose text vLLM looks for."""
_CONTEXT: Final = 4
"""Tokens that vLLM looks back at, for a character of several tokens."""
_MOST_TEXTS: Final = 1 << 18
_MOST_CANDIDATES: Final = 64
"""Of a position, whose texts are looked up one by one."""


class Candidate(NamedTuple):
    """A token at a position, under vLLM's names."""

    logprob: float
    rank: int
    decoded_token: str


Position = dict[int, Candidate] | tuple[float, int, str]
"""Candidates by their ids. The generated one is first; what a candidate has, where it is alone."""
_texts: dict[int, str] = {}
"""Of the tokens of this process's model."""


class TokenLogprobs:
    """Reads those of one answer. `of` makes one."""

    def __init__(self, theirs: Any, *, is_usual: bool) -> None:
        self._theirs, self._tokenizer = theirs, theirs.tokenizer
        self._has_own = theirs.num_logprobs is not None
        width = (theirs.num_logprobs or 0) + 1
        self._width = width if is_usual and 0 < width <= _MOST_CANDIDATES else 0
        self._positions: list[Position] = []
        self._seen: list[int] = []
        """The tokens so far."""
        self._total = theirs.cumulative_logprob

    @classmethod
    def of(cls, tokenizer: Any, request: Any) -> TokenLogprobs | None:
        """Return what reads those of a request of vLLM's core; None if it wants none."""
        params = request.sampling_params
        wanted = ("logprobs", "prompt_logprobs", "logprob_token_ids")
        if all(getattr(params, name, None) is None for name in wanted):
            return None
        theirs = names.LogprobsProcessor.from_new_request(tokenizer=tokenizer, request=request)
        others = (tokenizer is None, getattr(params, "logprob_token_ids", None))
        return cls(theirs, is_usual=not any((*others, getattr(params, "flat_logprobs", False))))

    def read(self, output: Any, ids: Sequence[int]) -> None:
        """Read those of an EngineCoreOutput.

        Raises:
            Exception: vLLM's, or it has none of its tokens.
        """
        if output.new_prompt_logprobs_tensors is None and self._read_usual(output, ids):
            return
        theirs = self._theirs
        if isinstance(theirs.logprobs, list):
            # It looks back at the ids alone.
            theirs.logprobs = [{token: None} for token in self._seen[-_CONTEXT:]]
            theirs.cumulative_logprob = self._total
        known = len(theirs.logprobs) if self._has_own else 0
        theirs.update_from_output(output)
        if self._has_own:
            self._positions += theirs.logprobs[known:]
            self._seen += ids
            self._total = theirs.cumulative_logprob

    def _read_usual(self, output: Any, ids: Sequence[int]) -> bool:
        """Read them past vLLM's processor; False, with nothing noted, if that must."""
        lists, width = output.new_logprobs, self._width
        if not (self._has_own and width and lists is not None):
            return not self._has_own and lists is None
        if width == len(ids) == 1:
            return self._read_one(ids[0], lists)
        rows = lists.logprob_token_ids.tolist(), lists.logprobs.tolist()
        found: list[Position] = []
        for token, candidates, logprobs, rank in zip(
            ids, *rows, lists.sampled_token_ranks.tolist(), strict=True
        ):
            if candidates[0] != token:
                return False
            del candidates[width:]
            texts = [_texts.get(each) or self._text(each) for each in candidates]
            for text in texts:
                if text.endswith(_INCOMPLETE):
                    return False
            if width == 1:
                # Most requests want the log probability of the token alone.
                found.append((logprobs[0], rank, texts[0]))
                continue
            ranks = chain((rank,), range(1, width))
            found.append(
                dict(zip(candidates, map(Candidate, logprobs, ranks, texts), strict=False))
            )
        self._positions += found
        self._seen += ids
        for row in rows[1]:
            self._total += row[0]
        return True

    def _read_one(self, token: int, lists: Any) -> bool:
        """Read that of a token that is alone, as most are."""
        text = _texts.get(token) or self._text(token)
        if lists.logprob_token_ids.item(0) != token or text.endswith(_INCOMPLETE):
            return False
        logprob = lists.logprobs.item(0)
        self._positions.append((logprob, lists.sampled_token_ranks.item(0), text))
        self._seen.append(token)
        self._total += logprob
        return True

    def _text(self, token: int) -> str:
        text: str
        (text,) = names.logprobs.convert_ids_list_to_tokens(self._tokenizer, [token])
        if len(_texts) < _MOST_TEXTS:
            _texts[token] = text
        return text

    def know(self, ids: Sequence[int], cumulative_logprob: float | None) -> None:
        """Note tokens that the client has with theirs.

        Args:
            cumulative_logprob: of all tokens that it has.
        """
        if self._has_own:
            self._seen += ids
            if cumulative_logprob is not None:
                self._total = cumulative_logprob

    def drop(self, count: int) -> None:
        """Forget those of the last tokens, which come after the end of the answer."""
        for position in self._positions[-count:]:
            first = (
                position[0]
                if isinstance(position, tuple)
                else next(iter(position.values())).logprob
            )
            self._total -= first
        del self._positions[-count:], self._seen[-count:]

    def taken(self) -> tuple[list[Position] | None, float | None]:
        """Return those that were not returned yet, and the sum of all so far."""
        if not self._has_own:
            return None, None
        found, self._positions = self._positions, []
        return found, self._total

    def of_prompt(self) -> Any:
        """Return vLLM's log probabilities of the prompt, once; None if there are none."""
        return self._theirs.pop_prompt_logprobs()
