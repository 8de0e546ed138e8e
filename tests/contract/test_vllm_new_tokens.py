"""Answers whose tokens pass vLLM's output processor are its own, token by token."""

import json
from typing import Any

from tests.support.places import TESTS, TINY


def test_answers_are_those_of_vllms_output_processor(vllm_interpreter: Any) -> None:
    script = str(TESTS / "support" / "vllm_new_tokens.py")
    num_fed, num_given, num_read = json.loads(vllm_interpreter.run(script, str(TINY / "llama")))
    # The others have stop strings, or are the first, the last, or of other weights. A token that is
    # a part of a character is vLLM's where log probabilities are wanted.
    assert num_given < 0.5 * num_fed
    assert num_read > 0.1 * num_fed
