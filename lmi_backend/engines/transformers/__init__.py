"""Hugging Face Transformers, LMI's Accelerate backend."""
