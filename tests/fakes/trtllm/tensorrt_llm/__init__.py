"""A double of TensorRT-LLM 1.2.1: its signatures, real MPI between its ranks, and no model.

It answers with the words of the prompt, over and over. test_signatures.py holds it to the record
of the real signatures in tests/data/signatures/trtllm.json.
"""

from .llmapi import LLM
from .sampling_params import SamplingParams

__version__ = "1.2.1"
__all__ = ["LLM", "SamplingParams"]
