"""The tiny T5: an encoder-decoder that knows a handful of translations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from transformers import GenerationConfig, T5Config, T5ForConditionalGeneration

from .corpus import TRANSLATIONS
from .fit import IGNORED, Plan, fit, least_probability
from .tokenizer import EOS_ID, PAD_ID, VOCABULARY

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from .progress import Progress

PLAN = Plan(what="t5", rate=4e-3, steps=150, cap=600, warm_up=10, check_every=10)


def new_t5() -> T5ForConditionalGeneration:
    """Make an untrained model; heads and widths divide by 4, as the Llama's do."""
    config = T5Config(
        vocab_size=VOCABULARY,
        d_model=128,
        d_kv=32,
        d_ff=256,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        pad_token_id=PAD_ID,
        eos_token_id=EOS_ID,
        decoder_start_token_id=PAD_ID,
    )
    model = T5ForConditionalGeneration(config)
    model.generation_config = GenerationConfig(
        do_sample=False,
        pad_token_id=PAD_ID,
        eos_token_id=EOS_ID,
        decoder_start_token_id=PAD_ID,
    )
    return model


def train_t5(tokenizer: PreTrainedTokenizerFast, progress: Progress) -> T5ForConditionalGeneration:
    """Return a trained model, in evaluation mode."""
    model = new_t5()
    prompts = tokenizer([prompt for prompt, _ in TRANSLATIONS], padding=True, return_tensors="pt")
    answers = tokenizer([answer for _, answer in TRANSLATIONS], padding=True, return_tensors="pt")
    labels = answers.input_ids.masked_fill(answers.attention_mask == 0, IGNORED)
    inputs = {
        "input_ids": prompts.input_ids,
        "attention_mask": prompts.attention_mask,
        "labels": labels,
    }

    def confidence() -> float:
        with torch.inference_mode():
            return least_probability(model(**inputs).logits, labels)

    fit(PLAN, model.parameters(), lambda: model(**inputs).loss, confidence, progress)
    return model.eval()
