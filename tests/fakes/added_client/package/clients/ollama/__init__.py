"""Ollama's clients."""
