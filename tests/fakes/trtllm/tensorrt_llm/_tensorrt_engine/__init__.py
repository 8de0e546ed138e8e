"""Until 1.3.0rc20; 1.3.0rc22 has no such package (NVIDIA's "TensorRT Backend Removed")."""

from ..llmapi.llm import HAS_TENSORRT, LLM

if not HAS_TENSORRT:
    raise ModuleNotFoundError("No module named 'tensorrt_llm._tensorrt_engine'")

__all__ = ["LLM"]
