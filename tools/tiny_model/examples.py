"""Turn the corpus into tokens: what is asked, what must be answered, and rows to train on."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING

import torch

from .tokenizer import EOS_ID

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from transformers import PreTrainedTokenizerFast

    from .corpus import Fact

Message = dict[str, str]

Batch = tuple[torch.Tensor, torch.Tensor]
"""Tokens, and how much it matters to predict each of them; both [rows, length]."""

LONG_ROW, LONG_ROWS = 288, 2
SHORT_ROW, SHORT_ROWS = 96, 10

PROMPT_WEIGHT = 0.1
"""Prompts come in no order that could be learned; more than this and their noise hides the rest."""


@dataclass(frozen=True)
class Example:
    """Hold a prompt and the answer it must get, as text and as tokens; the last token is EOS."""

    prompt: str
    answer: str
    prompt_ids: list[int]
    answer_ids: list[int]

    @property
    def ids(self) -> list[int]:
        """Give the whole of it, as trained on."""
        return self.prompt_ids + self.answer_ids


def plain(tokenizer: PreTrainedTokenizerFast, fact: Fact) -> Example:
    """Give the fact as a prompt and its continuation."""
    ids: list[int] = tokenizer.encode(fact.prompt)
    return Example(fact.prompt, fact.answer, ids, _answer(tokenizer, fact.answer))


def chat(
    tokenizer: PreTrainedTokenizerFast,
    fact: Fact,
    *,
    system: str | None = None,
    before: Sequence[Fact] = (),
) -> Example:
    """Give the fact as the last turn of a conversation; `before` holds the turns ahead of it."""
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    for past in before:
        messages.append({"role": "user", "content": past.question})
        messages.append({"role": "assistant", "content": past.reply})
    messages.append({"role": "user", "content": fact.question})
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return Example(fact.question, fact.reply, ids, _answer(tokenizer, fact.reply))


def conversations(
    tokenizer: PreTrainedTokenizerFast, facts: Sequence[Fact], systems: Sequence[str], seed: int
) -> list[Example]:
    """Give every fact once at the end of a conversation of two or three turns."""
    draw = random.Random(seed)  # noqa: S311 - must repeat itself, keeps no secret
    return [
        chat(
            tokenizer,
            fact,
            system=draw.choice((None, *systems)),
            before=draw.sample(facts, draw.choice((1, 2))),
        )
        for fact in facts
    ]


def turns(tokenizer: PreTrainedTokenizerFast, facts: Sequence[Fact], system: str) -> list[Example]:
    """Give every fact but the first after the one before it."""
    pairs = pairwise(facts)
    return [chat(tokenizer, fact, system=system, before=[past]) for past, fact in pairs]


def _answer(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    return [*tokenizer.encode(text, add_special_tokens=False), EOS_ID]


class Rows:
    """Deal examples into rows of equal length, so that no padding is computed on.

    A long passage begins a long row, where it fits whole. One more long row holds short examples
    only: it teaches what comes after EOS, for those who ask an engine to ignore it. Short rows give
    many examples the first place in a row, which is where every real prompt stands.
    """

    def __init__(self, short: Sequence[Example], long: Sequence[Example], seed: int) -> None:
        """Take the examples; `seed` fixes the order in which they are dealt."""
        self._short = _dealt(short, seed)
        self._long = _dealt(long, seed)

    def batch(self) -> tuple[Batch, Batch]:
        """Deal one batch of long rows and one of short rows."""
        starts = [[next(self._long)] for _ in range(LONG_ROWS)]
        return self._fill(LONG_ROW, [*starts, []]), self._fill(SHORT_ROW, [[]] * SHORT_ROWS)

    def _fill(self, length: int, starts: Sequence[Sequence[Example]]) -> Batch:
        rows = [self._row(length, start) for start in starts]
        ids = torch.tensor([[token for token, _ in row] for row in rows])
        return ids, torch.tensor([[weight for _, weight in row] for row in rows])

    def _row(self, length: int, start: Sequence[Example]) -> list[tuple[int, float]]:
        row: list[tuple[int, float]] = []
        for example in chain(start, self._short):
            row += [(token, PROMPT_WEIGHT) for token in example.prompt_ids]
            row += [(token, 1.0) for token in example.answer_ids]
            if len(row) >= length:
                break
        return row[:length]


def _dealt(cards: Sequence[Example], seed: int) -> Iterator[Example]:
    draw = random.Random(seed)  # noqa: S311 - must repeat itself, keeps no secret
    while True:
        yield from draw.sample(cards, len(cards))
