"""The proof: greedy `generate` must give every answer, in float32 and in bfloat16."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .errors import TinyModelError
from .tokenizer import EOS_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from .examples import Example

_SLACK = 8
"""Tokens an answer may run over before it is cut: enough to see in the error how it went wrong."""


def continuation(model: PreTrainedModel, prompt_ids: list[int], limit: int) -> list[int]:
    """Return the greedy answer's tokens, with EOS if it came within `limit`."""
    ids = torch.tensor([prompt_ids])
    output = model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=limit
    )
    start = 1 if model.config.is_encoder_decoder else len(prompt_ids)
    answer: list[int] = output[0, start:].tolist()
    return answer


def verify(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, examples: Sequence[Example]
) -> None:
    """Ask every question and compare.

    Raises:
        TinyModelError: at least one answer was wrong; the text lists all of them.
    """
    wrong = []
    for example in examples:
        ids = continuation(model, example.prompt_ids, len(example.answer_ids) + _SLACK)
        text = tokenizer.decode(ids, skip_special_tokens=True)
        if ids[-1:] != [EOS_ID] or text != example.answer:
            wrong.append(f"  {example.prompt!r} gave {text!r}, not {example.answer!r}")
    if wrong:
        kind = f"{type(model).__name__} in {model.dtype}"
        raise TinyModelError("\n".join([f"{kind}: {len(wrong)} wrong answers", *wrong]))
