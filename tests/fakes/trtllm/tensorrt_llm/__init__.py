"""A double of TensorRT-LLM 1.2.1: its signatures, real MPI between its ranks, and no model.

It answers with the words of the prompt, over and over. test_trtllm_signatures.py holds it to the
record of the real signatures in tests/data/signatures/trtllm.json. DOUBLE_OF_TRTLLM=1.0.0, 1.1.0 or
1.3.0rc29 makes it a double of that release. It prints when it is imported, as the library does
(tensorrt_llm/__init__.py).
"""

import sys

from .llmapi import LLM
from .recorded import VERSION as __version__
from .sampling_params import SamplingParams

__all__ = ["LLM", "SamplingParams", "__version__"]

sys.stdout.write(f"[TensorRT-LLM] TensorRT LLM version: {__version__}\n")
sys.stdout.flush()
