"""Clients of Triton's TensorRT-LLM backend."""
