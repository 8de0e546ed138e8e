"""A double of TensorRT-LLM 1.2.1: its signatures, real MPI between its ranks, and no model.

It answers with the words of the prompt, over and over. test_trtllm_signatures.py holds it to the
record of the real signatures in tests/data/signatures/trtllm.json. DOUBLE_OF_TRTLLM=1.0.0 or 1.1.0
makes it a double of that release.
"""

from .llmapi import LLM
from .llmapi.llm import VERSION as __version__
from .sampling_params import SamplingParams

__all__ = ["LLM", "SamplingParams", "__version__"]
