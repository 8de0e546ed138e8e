"""What vLLM's copies of a data-parallel model report is added up."""

import json
from typing import Any

from tests.support.places import TESTS


def test_copies_are_added_up_and_told_apart(vllm_interpreter: Any) -> None:
    seen, copies, one = json.loads(vllm_interpreter.run(str(TESTS / "support" / "vllm_copies.py")))
    assert seen == [[200, 40, 0.97, 1], [207, 40, 0.97, 2], [203, 40, 0.97, 3]]
    # Steps and requests of each, by which one that hangs is found.
    assert copies == [[1, 240], [2, 3]]
    assert one == {}
