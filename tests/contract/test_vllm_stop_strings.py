"""Engines that give token ids only have vLLM's texts, stop strings and reasons."""

import json
from typing import Any

from tests.support.places import TESTS, TINY


def test_answers_end_as_vllms_do(vllm_interpreter: Any) -> None:
    script = str(TESTS / "support" / "vllm_stop_strings.py")
    seen = json.loads(vllm_interpreter.run(script, str(TINY / "llama")))
    assert min(seen["strings"], seen["tokens"], seen["halves"]) > 400
