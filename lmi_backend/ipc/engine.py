"""What stub and worker say of an engine: how it is built, what it can do, what it does."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from lmi_backend.structures import DEFAULT_BOUNDS, StructureBounds


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What an adapter is built from; the part of the plan that concerns the engine."""

    model: str
    """Local folder or hub id; empty for an engine that needs none."""
    name: str = ""
    """What Triton calls it: one of the names by which OpenAI bodies may ask for it."""
    arguments: dict[str, Any] = {}
    """Typed arguments under the engine's own names."""
    passthrough: dict[str, str] = {}
    """Arguments as the user's text, by the engine's name; the adapter reads or refuses them."""
    front_end: dict[str, Any] = {}
    """Arguments of the engine's own HTTP server, which a `HttpEngine` answers with."""
    custom_file: str = ""
    """The user's model.py; empty for none."""
    custom_handler: str = "handle"
    properties: dict[str, str] = {}
    """All options as text, for the user's handler."""
    dialect: Literal["legacy", "async"] = "async"
    output_formatter: str = ""
    tgi_compat: bool = False
    """How LMI bodies are answered, where the user's code stands before the engine."""
    adapters: dict[str, str] = {}
    """LoRA adapter name to folder."""
    structure_bounds: StructureBounds = DEFAULT_BOUNDS
    """What a request may ask of the compiler of structured outputs."""


class Capabilities(msgspec.Struct, frozen=True, array_like=True):
    """What a started engine can do."""

    engine: str
    version: str
    max_model_len: int
    """Longest prompt plus answer, in tokens."""
    calls: bool = False
    """Whether it is a `HttpEngine`."""
    adapters: bool = False
    """Whether it is an `LoraEngine`."""


class EngineStats(msgspec.Struct, frozen=True, array_like=True):
    """The engine's own view of its load."""

    running: int = 0
    """Requests it generates for."""
    waiting: int = 0
    """Requests it holds back."""
    kv_cache_usage: float = 0.0
    """Share of KV-cache blocks in use, 0 to 1."""
    steps: int | None = None
    """Steps made since the start; None from an engine that does not count them."""
    prompt_tokens_looked_up: int = 0
    """Prompt tokens since the start that were looked for in the prefix cache."""
    prompt_tokens_cached: int = 0
    """Of these, found there."""
    tokens_drafted: int = 0
    """Tokens since the start that speculation proposed."""
    tokens_accepted: int = 0
    """Of these, kept."""
