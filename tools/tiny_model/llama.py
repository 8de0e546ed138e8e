"""The tiny Llama: shape, training, and the check on every answer it was taught."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import cross_entropy
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from .corpus import FACTS, PASSAGES, SYSTEM_PROMPTS
from .examples import Example, Rows, chat, conversations, plain, turns
from .fit import IGNORED, Plan, fit, least_probability
from .tokenizer import BOS_ID, EOS_ID, MAX_LENGTH, PAD_ID, VOCABULARY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from transformers import PreTrainedTokenizerFast

    from .progress import Progress

PLAN = Plan(what="llama", rate=4e-3, steps=320, cap=700)

_LENGTH_STEP = 64


def new_llama() -> LlamaForCausalLM:
    """Make an untrained model.

    Heads, key-value heads, widths and vocabulary divide by 4, for tensor parallel ranks; a head of
    32 is the smallest that vLLM's CPU attention takes.
    """
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=MAX_LENGTH,
        tie_word_embeddings=False,
        pad_token_id=PAD_ID,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(
        do_sample=False, pad_token_id=PAD_ID, bos_token_id=BOS_ID, eos_token_id=EOS_ID
    )
    return model


def lessons(tokenizer: PreTrainedTokenizerFast) -> tuple[list[Example], list[Example]]:
    """Give what is taught: the short examples, and the long ones."""
    short = [plain(tokenizer, fact) for fact in FACTS]
    for system in (None, *SYSTEM_PROMPTS):
        short += [chat(tokenizer, fact, system=system) for fact in FACTS]
    for seed in range(3):
        short += conversations(tokenizer, FACTS, SYSTEM_PROMPTS, seed)
    short += turns(tokenizer, FACTS, SYSTEM_PROMPTS[0])
    long = [form(tokenizer, passage) for passage in PASSAGES for form in (plain, chat)]
    return short, long


def train_llama(tokenizer: PreTrainedTokenizerFast, progress: Progress) -> LlamaForCausalLM:
    """Return a trained model, in evaluation mode."""
    model = new_llama()
    teach(PLAN, model, model.parameters(), *lessons(tokenizer), progress=progress)
    return model.eval()


def teach(
    plan: Plan,
    model: torch.nn.Module,
    parameters: Iterable[torch.nn.Parameter],
    short: Sequence[Example],
    long: Sequence[Example],
    *,
    progress: Progress,
) -> None:
    """Train `parameters`, which are all or some of the model's, until it knows every example."""
    rows = Rows(short, long, seed=0)

    def loss() -> torch.Tensor:
        return torch.stack([_loss(model, *batch) for batch in rows.batch()]).mean()

    fit(plan, parameters, loss, lambda: confidence(model, [*short, *long]), progress)


def _loss(model: torch.nn.Module, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Give the mean loss of the tokens, counting each by its weight."""
    logits = model(input_ids=ids).logits[:, :-1]
    each = cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    counted = weights[:, 1:].flatten()
    return (each * counted).sum() / counted.sum()


def confidence(model: torch.nn.Module, examples: Sequence[Example]) -> float:
    """Give the probability of the least probable answer token, each prompt standing alone."""
    worst = 1.0
    for group in _by_length(examples):
        ids, labels = _padded(group)
        with torch.inference_mode():
            logits = model(input_ids=ids).logits
        worst = min(worst, least_probability(logits[:, :-1], labels[:, 1:]))
    return worst


def _padded(examples: Sequence[Example]) -> tuple[torch.Tensor, torch.Tensor]:
    """Stack examples into inputs and labels, filled up on the right, labels on the answers only.

    No attention mask is needed: a causal model never looks right.
    """
    width = max(len(example.ids) for example in examples)
    ids, labels = [], []
    for example in examples:
        fill = width - len(example.ids)
        ids.append(example.ids + [PAD_ID] * fill)
        labels.append([IGNORED] * len(example.prompt_ids) + example.answer_ids + [IGNORED] * fill)
    return torch.tensor(ids), torch.tensor(labels)


def _by_length(examples: Sequence[Example]) -> list[list[Example]]:
    groups: dict[int, list[Example]] = {}
    for example in examples:
        groups.setdefault(len(example.ids) // _LENGTH_STEP, []).append(example)
    return list(groups.values())
