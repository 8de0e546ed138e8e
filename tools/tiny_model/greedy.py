"""The proof: greedy `generate` must give every answer, in float32 and in bfloat16."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .errors import TinyModelError
from .tokenizer import EOS_ID, PAD_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from .examples import Example

_BATCH = 16
_SLACK = 8
"""Tokens an answer may run over before it is cut: enough to see in the error how it went wrong."""


def continuations(
    model: PreTrainedModel, prompts: Sequence[list[int]], limit: int
) -> list[list[int]]:
    """Return the tokens of the greedy answers, each to its EOS if that came within `limit`."""
    width = max(map(len, prompts))
    fills = [width - len(prompt) for prompt in prompts]
    rows = [[PAD_ID] * fill + prompt for fill, prompt in zip(fills, prompts, strict=True)]
    mask = [[0] * fill + [1] * (width - fill) for fill in fills]
    output = model.generate(
        input_ids=torch.tensor(rows), attention_mask=torch.tensor(mask), max_new_tokens=limit
    )
    start = 1 if model.config.is_encoder_decoder else width
    answers: list[list[int]] = output[:, start:].tolist()
    return [_to_end(answer) for answer in answers]


def _to_end(answer: list[int]) -> list[int]:
    return answer[: answer.index(EOS_ID) + 1] if EOS_ID in answer else answer


def verify(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, examples: Sequence[Example]
) -> None:
    """Ask every question and compare.

    Raises:
        TinyModelError: at least one answer was wrong; the text lists all of them.
    """
    # Answers of about one length end together.
    waiting = sorted(examples, key=lambda example: len(example.answer_ids))
    wrong = []
    for begin in range(0, len(waiting), _BATCH):
        batch = waiting[begin : begin + _BATCH]
        limit = len(batch[-1].answer_ids) + _SLACK
        answers = continuations(model, [example.prompt_ids for example in batch], limit)
        for example, ids in zip(batch, answers, strict=True):
            text = tokenizer.decode(ids, skip_special_tokens=True)
            if ids[-1:] != [EOS_ID] or text != example.answer:
                wrong.append(f"  {example.prompt!r} gave {text!r}, not {example.answer!r}")
    if wrong:
        kind = f"{type(model).__name__} in {model.dtype}"
        raise TinyModelError("\n".join([f"{kind}: {len(wrong)} wrong answers", *wrong]))
