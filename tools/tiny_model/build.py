"""Make all three models, prove them, and write them with the answers that were proved."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.utils import logging

from .adapter import lessons as adapter_lessons
from .adapter import merged, save_adapter, train_adapter
from .corpus import EDITS, FACTS, PASSAGES, SYSTEM_PROMPTS, TRANSLATIONS, all_text
from .examples import Example, chat, plain, turns
from .greedy import verify
from .llama import train_llama
from .t5 import train_t5
from .tokenizer import llama_tokenizer, save_tokenizer, t5_tokenizer, train_tokenizer, write_json

if TYPE_CHECKING:
    from pathlib import Path

    from tokenizers import Tokenizer
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from .progress import Progress

THREADS = 1
"""Steps are so short that a second thread takes a third more CPU, and no less time."""


def build(folder: Path, progress: Progress) -> None:
    """Fill the empty `folder`.

    Raises:
        TinyModelError: a model did not learn, or answered wrongly in the end.
    """
    torch.set_num_threads(THREADS)
    torch.use_deterministic_algorithms(mode=True)
    logging.disable_progress_bar()
    base = train_tokenizer(all_text())
    _make_llama(base, folder, progress)
    _make_adapter(folder, progress)
    _make_t5(base, folder, progress)


def _make_llama(base: Tokenizer, folder: Path, progress: Progress) -> None:
    torch.manual_seed(0)
    tokenizer = llama_tokenizer(base)
    path = folder / "llama"
    train_llama(tokenizer, progress).save_pretrained(path)
    save_tokenizer(tokenizer, path)

    model, tokenizer = _load_llama(path)
    questions = [plain(tokenizer, fact) for fact in FACTS]
    chats = [chat(tokenizer, fact) for fact in FACTS]
    later = turns(tokenizer, FACTS, SYSTEM_PROMPTS[0])
    long = [form(tokenizer, passage) for passage in PASSAGES for form in (plain, chat)]
    _prove(model, tokenizer, [*questions, *chats, *later, *long])
    write_json(folder / "questions.json", _table(questions, "prompt"))
    write_json(folder / "chat_questions.json", _table(chats, "question"))
    write_json(folder / "long_questions.json", _table(long[::2], "prompt"))
    _report("llama", model, len(questions + chats + later + long), progress)


def _make_adapter(folder: Path, progress: Progress) -> None:
    torch.manual_seed(1)
    model, tokenizer = _load_llama(folder / "llama")
    path = folder / "lora"
    save_adapter(train_adapter(model, tokenizer, progress), path)

    adapted = merged(model, path)
    short, long = adapter_lessons(tokenizer)
    _prove(adapted, tokenizer, [*short, *long])
    write_json(path / "expected.json", _expected())
    progress.note(f"lora: {len(short + long)} answers right, {len(EDITS)} facts changed")


def _expected() -> dict[str, list[dict[str, str]]]:
    """Say what the adapter changes, in both forms, and what it must leave as it was."""
    edited = {edit.fact for edit in EDITS}
    return {
        "changed": [
            {"prompt": edit.fact.prompt, "base": edit.fact.answer, "adapted": edit.answer}
            for edit in EDITS
        ],
        "chat_changed": [
            {"question": edit.fact.question, "base": edit.fact.reply, "adapted": edit.edited.reply}
            for edit in EDITS
        ],
        "kept": [
            {"prompt": fact.prompt, "answer": fact.answer} for fact in FACTS if fact not in edited
        ],
    }


def _make_t5(base: Tokenizer, folder: Path, progress: Progress) -> None:
    torch.manual_seed(2)
    tokenizer = t5_tokenizer(base)
    path = folder / "t5"
    train_t5(tokenizer, progress).save_pretrained(path)
    save_tokenizer(tokenizer, path)

    model = AutoModelForSeq2SeqLM.from_pretrained(path, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(path)
    questions = [
        Example(prompt, answer, tokenizer.encode(prompt), tokenizer.encode(answer))
        for prompt, answer in TRANSLATIONS
    ]
    _prove(model, tokenizer, questions)
    write_json(path / "questions.json", _table(questions, "prompt"))
    _report("t5", model, len(questions), progress)


def _load_llama(path: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Read the model back from its files, because it is the files that the tests will use."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    return model, AutoTokenizer.from_pretrained(path)


def _prove(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, examples: list[Example]
) -> None:
    verify(model, tokenizer, examples)
    verify(copy.deepcopy(model).to(torch.bfloat16), tokenizer, examples)


def _table(examples: list[Example], key: str) -> list[dict[str, str]]:
    return [{key: example.prompt, "answer": example.answer} for example in examples]


def _report(what: str, model: PreTrainedModel, answers: int, progress: Progress) -> None:
    size = sum(weight.numel() for weight in model.parameters())
    progress.note(f"{what}: {size:,} parameters, {answers} answers right")
