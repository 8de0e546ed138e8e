"""What vLLM's outputs become."""

from types import SimpleNamespace

import pytest

from lmi_backend.engines.vllm.inside.outputs import OutputReader
from lmi_backend.errors import EngineError
from lmi_backend.generation import GenerateRequest


def test_an_answer_that_vllm_ends_with_an_error_is_none() -> None:
    """As its own server has it; LMI's clients would get the half text as the whole answer."""
    answer = SimpleNamespace(
        finish_reason="error", text="half", token_ids=(1,), stop_reason=None, index=0
    )
    reader = OutputReader(None, GenerateRequest("a"))
    with pytest.raises(EngineError, match="vLLM failed on the request"):
        list(reader.deltas(SimpleNamespace(prompt_token_ids=(1,), outputs=[answer])))
