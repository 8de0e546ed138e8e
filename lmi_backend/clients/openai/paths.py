"""OpenAI's paths that engines, handlers or readers of bodies name."""

from __future__ import annotations

from typing import Final

CHATS: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"
EMBEDDINGS: Final = "/v1/embeddings"
MODELS: Final = "/v1/models"
TOKENS: Final = "/inference/v1/generate"
"""vLLM's path for prompts that are tokens already, and for answers that stay tokens."""
RESETS: Final = ("/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache")
"""vLLM's paths that empty a cache, here of each worker."""
