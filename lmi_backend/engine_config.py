"""What an engine is built from, and how its clients are answered.

A plan holds these, `Start` carries them to a worker and `Welcome` to an endpoint's client, each as
it is: msgspec encodes plain dataclasses, and a plan may import the standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from lmi_backend.structures import DEFAULT_BOUNDS, StructureBounds

Dialect = Literal["legacy", "async"]


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """How bodies are read and answered where they do not say it themselves."""

    dialect: Dialect = "async"
    """Whose defaults an LMI body gets."""
    output_formatter: str = ""
    """LMI's form of answer; empty for the one that fits the request."""
    tgi_compat: bool = False
    """Whether LMI answers take the form of TGI's."""
    is_embedding: bool = False
    """Whether the model makes vectors, not text."""
    normalize: bool = True
    """Whether the vectors have length 1."""
    stop_by_id: bool = True
    """Whether a client may end a request by its id, as TensorRT-LLM's do."""


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """What a model is, for those who list models."""

    name: str = ""
    """What Triton calls it."""
    served_names: tuple[str, ...] = ()
    """Further names by which its clients' bodies may ask for it."""
    root: str = ""
    """Folder or hub id of its weights."""
    engine: str = ""
    version: str = ""
    """Of the engine."""
    max_model_len: int = 0
    """Longest prompt plus answer, in tokens."""
    return_seconds: float = 0.0
    """How long a request may wait for it when it is gone, to go on when it is back; 0: not."""
    migration_limit: int = 0
    """How often a request may do so."""
    capacity: int = 0
    """Answers that run or wait at once."""
    triton_version: str = ""
    """Its version there, where the front end may answer what is asked of Triton's `generate`."""
    digest: str = ""
    """Changes with the model's files, its tokenizer and its prompts; empty if it is not known."""
    adapters: dict[str, str] = field(default_factory=dict)
    """LoRA adapter name to what changes with its files."""


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """What an engine implementation is built from; the part of the plan that a worker gets."""

    model: str
    """Local folder, hub id or, before it is fetched, s3:// prefix; empty for an engine that needs
    none."""
    name: str = ""
    """What Triton calls the model: one of the names by which OpenAI bodies may ask for it."""
    clients: ClientSettings = ClientSettings()
    """How LMI bodies are answered, where the user's code stands before the engine."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Typed arguments under the engine's own names."""
    passthrough: dict[str, str] = field(default_factory=dict)
    """Further arguments as the user's text, which the engine itself reads and may refuse."""
    custom_file: str = ""
    """The user's own code, a Python file; empty for none."""
    runs_code: bool = False
    """Whether users' code stands before the engine: the model's own, or that of an adapter that the
    model has from the start."""
    custom_handler: str = "handle"
    """Name of the handler in it."""
    properties: dict[str, str] = field(default_factory=dict)
    """All options as text, for the user's handler."""
    front_end: dict[str, Any] = field(default_factory=dict)
    """Arguments of the engine's own HTTP server, which an `HttpEngine` answers with."""
    adapters: dict[str, str] = field(default_factory=dict)
    """LoRA adapter name to folder."""
    sends_ids: bool = False
    """Whether deltas carry the ids of their tokens, so that another worker can go on from them."""
    structure_bounds: StructureBounds = DEFAULT_BOUNDS
    """What a request may ask of the compiler of structured outputs."""
