"""What OpenAI's responses and Anthropic's messages nest, and no server here reads.

`unserved_names` has the members of whole bodies. The names here are those of the types by which the
libraries of OpenAI and Anthropic describe what they send.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

OFFERED: Final = (
    "web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11",
)  # fmt: skip
"""Types of tools that are left out where the model has others to choose from: Codex always offers
one of them."""
HOSTED: Final = (
    *OFFERED, "apply_patch", "code_interpreter", "computer", "computer_use_preview", "file_search",
    "image_generation", "local_shell", "mcp", "programmatic_tool_calling", "shell", "tool_search",
)  # fmt: skip
"""Types of a response's tools that OpenAI's own server runs or describes to its model."""
ITEMS: Final = ("additional_tools",)
"""Types of a response's items that have a role, so that vLLM's server takes them for messages."""
REFUSED: Final[Mapping[str, str]] = {
    "allowed_callers": "of a tool, unless `direct` is one of them",
    "effort": "of a message's own `output_config`",
    "file_data": "of a file",
    "file_id": "of a file or an image",
    "file_url": "of a file",
    "filename": "of a file",
    "server_name": "of a server's tool that a message adds or removes",
    "task_budget": "of `output_config`",
}
"""Members that limit or select, and where they stand."""
MENDED: Final[Mapping[str, str]] = {
    "clear_at": "a message that is to be gone is left out",
    "refusal": "a text of its message, as its other parts are",
}
"""Members whose meaning a body is given before the engine's server reads it."""
REASONING: Final[Mapping[str, object]] = {"enabled": True, "exclude": False, "max_tokens": None}
"""Other servers' members of a response's `reasoning`, and their values without effect."""
PARTS: Final = ("text", "image", "tool_reference")
"""Types of a tool result's parts that reach the model of an Anthropic message."""
HARMLESS: Final[Mapping[str, str]] = {
    "acknowledged_safety_checks": "of a tool that is refused",
    "annotations": "says where an earlier text comes from",
    "block_binding": "no thinking is bound to a conversation here",
    "caller": "says who called a tool",
    "caller_id": "says who called a tool",
    "citations": "of a document, which is refused, or of an earlier text",
    "context": "of a document, which is refused",
    "display": "thinking is always shown",
    "eager_input_streaming": "a wish for speed",
    "external_web_access": "of a search, which nobody runs here",
    "filters": "of a search, which nobody runs here",
    "generate_summary": "reasoning is shown whole",
    "input_examples": "examples for the model",
    "is_error": "the result's text says it",
    "output_schema": "describes a result that the client makes",
    "oversized_image": "a wish about an image's size",
    "prefix_mismatch_behavior": "no thinking is bound to a conversation here",
    "prompt_cache_breakpoint": "prefixes are cached without it",
    "search_content_types": "of a search, which nobody runs here",
    "search_context_size": "of a search, which nobody runs here",
    "summary": "reasoning is shown whole",
    "toolset_name": "says whose tool was called",
    "transformations": "wishes about an image's size",
    "ttl": "prefixes are cached without it",
    "user_id": "names the client's user",
    "user_location": "of a search, which nobody runs here",
}
"""Nested members without an effect, and why the answer is still the right one."""
