"""Run in vLLM's core: whatever the model is, it says what the prompt tells it to, turn by turn."""

import json
import math
from typing import Any

from transformers import AutoTokenizer
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

ORDER = "SAY "
"""What stands in a prompt before the answers, a JSON list of texts."""
TOOL = "<|tool|>"
"""What the chat template writes before a tool's result: then it is the next answer's turn."""


class Obedient(AdapterLogitsProcessor):  # type: ignore[misc]
    """Chooses each token of an answer, as `option.logits_processors` names it."""

    def __init__(self, vllm_config: Any, *device: Any) -> None:
        super().__init__(vllm_config, *device)
        self._tokenizer = AutoTokenizer.from_pretrained(vllm_config.model_config.tokenizer)

    def is_argmax_invariant(self) -> bool:
        """Return False: greedy requests are told what to say too."""
        return False

    def new_req_logits_processor(self, _: Any) -> Any:
        """Return what is called for one request with its prompt, its output so far, and logits."""
        ids: list[int] = []

        def choose(prompt: list[int], output: list[int], logits: Any) -> Any:
            if not ids:
                text = answer_to(self._tokenizer.decode(prompt, clean_up_tokenization_spaces=False))
                ids.extend(self._tokenizer.encode(text, add_special_tokens=False))
                ids.append(self._tokenizer.eos_token_id)
            # What the output has may be placeholders; its length is right.
            logits.fill_(-math.inf)
            logits[ids[min(len(output), len(ids) - 1)]] = 0.0
            return logits

        return choose


def answer_to(prompt: str) -> str:
    """Return what a prompt orders; of its orders the last one counts."""
    end = len(prompt)
    while (start := prompt.rfind(ORDER, 0, end)) >= 0:
        rest, end = prompt[start + len(ORDER) :], start
        try:
            answers, _ = json.JSONDecoder().raw_decode(rest)
        except ValueError:
            # Quoted by a program, or told of: an error here would end vLLM's core.
            continue
        if isinstance(answers, list) and answers:
            return str(answers[min(rest.count(TOOL), len(answers) - 1)])
    return "Nothing was ordered."
