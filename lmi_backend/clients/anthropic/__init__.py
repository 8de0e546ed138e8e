"""Anthropic's clients."""
