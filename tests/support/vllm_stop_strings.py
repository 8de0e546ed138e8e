"""Detokenise answers as vLLM does and as `engines/steps.py` does; compare text and reasons.

Runs in the engine's Python. Writes as JSON how many answers ended with a stop string, with a stop
token, and within a character.
"""

import json
import random
import sys
from types import SimpleNamespace
from typing import Any

from transformers import AutoTokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode
from vllm.sampling_params import SamplingParams
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.detokenizer import IncrementalDetokenizer

from lmi_backend.engines.steps import AnswerDeltas, StepOutput
from lmi_backend.generation import GenerateRequest, Sampling

ANSWERS, EOS = 4000, 2
WORDS = (
    "a",
    "e",
    "the",
    "aa",
    "ab",
    "abab",
    "é",
    "東京",
    "🗼",
    "b a",
    "\ufffd",
    "</s>",
    "in",
    "ing",
)
TEXTS = ("abababab", "aaaa", "the thing in the ring", "née à 東京 🗼 東", "b a b a", "🗼🗼", "</s>")


def draw(
    dice: random.Random, tokenizer: Any, letters: list[int]
) -> tuple[list[int], dict[str, Any]]:
    """Return the tokens of an answer, and what is asked for.

    Args:
        letters: the token of each byte: what is longer than a byte is cut anywhere.
    """
    ids: list[int] = []
    for _ in range(dice.randint(1, 6)):
        text = dice.choice(TEXTS)
        ids += dice.choice(
            (
                tokenizer.encode(text, add_special_tokens=False),
                [letters[byte] for byte in text.encode()],
                [dice.randrange(3, len(tokenizer)) for _ in range(3)],
                [letters[dice.choice("é東🗼".encode())]],
                [EOS] if dice.random() < 0.1 else [],
            )
        )
    ids = ids[: dice.randint(1, 40)] or [letters[0x61]]
    asked: dict[str, Any] = {
        "stop": dice.sample(WORDS, dice.randint(0, 3)),
        "min_tokens": dice.choice((0, 0, 1, dice.randint(0, len(ids)))),
        "stop_token_ids": dice.sample(ids, 1) if dice.random() < 0.2 else [],
        "ignore_eos": dice.random() < 0.3,
        "skip_special_tokens": dice.random() < 0.7,
    }
    return ids, asked | {"include_stop_str_in_output": dice.random() < 0.4}


def by_vllm(tokenizer: Any, ids: list[int], asked: dict[str, Any]) -> tuple[Any, ...]:
    """Return text, reasons and number of tokens of an answer, token by token."""
    fields = dict.fromkeys(EngineCoreRequest.__struct_fields__[:9]) | {
        "request_id": "1",
        "prompt_token_ids": [5],
        "sampling_params": SamplingParams(max_tokens=len(ids), **asked),
        "arrival_time": 0.0,
    }
    words = IncrementalDetokenizer.from_new_request(tokenizer, EngineCoreRequest(**fields))
    for count, token_id in enumerate(ids, 1):
        reason, why = None, None
        # As its core ends an answer, which chooses no end before there are `min_tokens`.
        if token_id == EOS and not asked["ignore_eos"]:
            reason = "stop"
        elif token_id in asked["stop_token_ids"]:
            reason, why = "stop", token_id
        elif count == len(ids):
            reason = "length"
        if stop := words.update([token_id], reason == "stop"):
            reason, why = "stop", stop
        if reason:
            return words.get_next_output_text(finished=True, delta=False), reason, why, count
    raise AssertionError("no end")


def by_us(tokenizer: Any, ids: list[int], asked: dict[str, Any]) -> tuple[Any, ...]:
    sampling = Sampling(
        max_tokens=len(ids),
        stop=tuple(asked["stop"]),
        stop_token_ids=tuple(asked["stop_token_ids"]),
        include_stop=asked["include_stop_str_in_output"],
        min_tokens=asked["min_tokens"],
        skip_special_tokens=asked["skip_special_tokens"],
    )
    ends = frozenset[int]() if asked["ignore_eos"] else frozenset({EOS})
    answer = AnswerDeltas(tokenizer, GenerateRequest("p", sampling), 1, ends)
    text, count = "", 0
    for token_id in ids:
        delta = answer.add(StepOutput((token_id,)))
        text += delta.text
        count += delta.num_tokens
        if answer.is_over:
            return text, delta.finish_reason, delta.stop_reason, count
    raise AssertionError("no end")


def main() -> None:
    dice = random.Random(20261125)
    tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
    letters = tokenizer.convert_tokens_to_ids([*bytes_to_unicode().values()])
    letters = [of_byte for _, of_byte in sorted(zip(bytes_to_unicode(), letters, strict=True))]
    seen = SimpleNamespace(strings=0, tokens=0, halves=0)
    for _ in range(ANSWERS):
        ids, asked = draw(dice, tokenizer, letters)
        ends = {*asked["stop_token_ids"], *(() if asked["ignore_eos"] else (EOS,))}
        if not ends.isdisjoint(ids[: asked["min_tokens"]]):
            continue  # no core chooses them
        theirs = by_vllm(tokenizer, ids, asked)
        assert by_us(tokenizer, ids, asked) == theirs, (ids, asked, theirs)
        seen.strings += isinstance(theirs[2], str)
        seen.tokens += isinstance(theirs[2], int)
        seen.halves += tokenizer.decode(ids[: theirs[3]]).endswith("\ufffd")
    json.dump(vars(seen), sys.stdout)


if __name__ == "__main__":
    main()
