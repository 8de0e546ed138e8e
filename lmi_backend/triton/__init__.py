"""Triton's Python backend: the only folder that knows its stub."""
