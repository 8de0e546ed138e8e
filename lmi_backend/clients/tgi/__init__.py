"""Clients of Text Generation Inference."""
