"""A small byte-level tokenizer, shared by all the models.

Byte level means that any text comes back as it went in, whatever the few hundred merges were
learned from. The Llama form puts BOS in front of a plain prompt; the T5 form puts EOS behind, as T5
does.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from .errors import TinyModelError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PAD, BOS, EOS = "<pad>", "<s>", "</s>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
SPECIAL = (PAD, BOS, EOS, *ROLES)
PAD_ID, BOS_ID, EOS_ID = range(3)

VOCABULARY = 512
"""A round number, so that a vocabulary split over 2 or 4 ranks needs no padding."""

MAX_LENGTH = 2048

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def train_tokenizer(lines: Iterable[str]) -> Tokenizer:
    """Learn the merges from `lines`.

    Lines with other than ASCII characters are left out, so that such a character stays several
    tokens.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([line for line in lines if line.isascii()], trainer)
    if (size := tokenizer.get_vocab_size()) != VOCABULARY:
        raise TinyModelError(f"the text gives {size} tokens, not {VOCABULARY}: it is too short")
    return tokenizer


def llama_tokenizer(base: Tokenizer) -> PreTrainedTokenizerFast:
    """Wrap `base` for a decoder: BOS in front, padding on the left, a chat template."""
    tokenizer = _wrap(base, f"{BOS} $A", padding_side="left")
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def t5_tokenizer(base: Tokenizer) -> PreTrainedTokenizerFast:
    """Wrap `base` for an encoder-decoder: EOS behind, padding on the right."""
    return _wrap(base, f"$A {EOS}", padding_side="right")


def _wrap(base: Tokenizer, single: str, *, padding_side: str) -> PreTrainedTokenizerFast:
    own = Tokenizer.from_str(base.to_str())
    own.post_processor = processors.TemplateProcessing(
        single=single, special_tokens=[(BOS, BOS_ID), (EOS, EOS_ID)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=own,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        model_max_length=MAX_LENGTH,
        model_input_names=["input_ids", "attention_mask"],
        padding_side=padding_side,
        clean_up_tokenization_spaces=False,
    )


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the tokenizer's files so that old and new readers agree about them.

    transformers 5 puts the template in a file of its own, writes no `special_tokens_map.json` and
    names a class that transformers 4 does not have; engines still read the older form, and the
    newer library reads both.
    """
    tokenizer.save_pretrained(folder, save_jinja_files=False)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    write_json(path, config)
    write_json(folder / "special_tokens_map.json", tokenizer.special_tokens_map)


def write_json(path: Path, value: object) -> None:
    """Write `value` for people to read: indented, UTF-8 unescaped."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
