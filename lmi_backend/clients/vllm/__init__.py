"""Clients of Triton's vLLM backend."""
