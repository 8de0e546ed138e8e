"""What an engine is built from, and how its clients are answered.

A plan holds these, `Start` carries them to a worker and `Welcome` to an endpoint's client, each as
it is: msgspec encodes plain dataclasses, and a plan may import the standard library only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lmi_backend.names import DEFAULT_MODEL_NAME
from lmi_backend.structures import DEFAULT_BOUNDS, StructureBounds

Dialect = Literal["legacy", "async"]


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """How bodies are read and answered where they do not say it themselves."""

    dialect: Dialect = "async"
    """Whose defaults an LMI body gets."""
    output_formatter: str = ""
    """LMI's format of answers; empty for the one that fits the request."""
    openai_lines: bool = False
    """Whether streams to OpenAI's bodies on LMI's path are JSON lines, not events."""
    tgi_compat: bool = False
    """Whether LMI answers have TGI's format."""
    is_embedding: bool = False
    """Whether the model makes vectors, not text."""
    normalize: bool = True
    """Whether the vectors have length 1."""
    stop_by_id: bool = True
    """Whether a client may end a request by its id, as TensorRT-LLM's do."""


@dataclass(frozen=True)
class Context:
    """What is known of the model when a body is read."""

    clients: ClientSettings = ClientSettings()
    adapters: Collection[str] = ()
    """LoRA adapters known now, in order; in the stub a live view."""
    is_custom: bool = False
    """Whether the user's own code reads the bodies."""
    has_lora: bool = False
    """Whether LoRA adapters are served, known or not."""
    adapter: str = ""
    """The adapter whose name the client uses for the model, in a path or a header."""


@dataclass(frozen=True, kw_only=True)
class RequestLimits:
    """What clients may request at once, and for how long."""

    max_running: int = 256
    """Requests that one worker generates for at once."""
    queue_size: int = 1000
    """Requests that wait before one is refused."""
    tenant_weights: Mapping[str, int] = field(default_factory=dict)
    """Tenant to its share of the tokens, where that is not 1."""
    tenant_from_user: bool = False
    """Whether a body's user is its tenant, where nobody else names one."""
    ttft_ms: int = 0
    """Milliseconds in which an answer must begin; 0 for any."""
    tpot_ms: int = 0
    """Milliseconds between its tokens, in the mean; 0 for any."""
    concurrency_threshold: int = 0
    """A worker with so many more answers to make than another gets no request for its prompt; 0
    where prompts do not choose a worker."""
    request_timeout: int = 240
    """Seconds a request may run."""
    drain_seconds: int = 30
    """Seconds that running requests have to finish when the model stops."""
    max_message_size: int = 67_108_864
    """Bytes of the largest message between stub and worker."""
    migration_timeout: float | None = None
    """Seconds a request waits for a worker while none is ready; None to go by the last start."""
    migration_limit: int = 3
    """Times a request resumes elsewhere."""
    resumable: bool = False
    """Whether clients may resume every stream, and not only those that request it."""
    resume_window: int = 60
    """Seconds that an answer is kept without its client; 0 to keep none."""
    adapter_roots: tuple[str, ...] = ()
    """Folders from which adapters may be loaded while serving; none where LoRA is off."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What token ids depend on: another process resumes an answer only if it has the same."""

    digest: str = ""
    """Changes with the model's files, its tokenizer and its prompts; empty if it is not known."""
    adapters: dict[str, str] = field(default_factory=dict)
    """LoRA adapter name to what changes with its files."""


@dataclass(frozen=True, kw_only=True)
class ModelInfo(Identity):
    """What a model is, for those who list models."""

    name: str = ""
    """Its name in Triton."""
    served_names: tuple[str, ...] = ()
    """Further names of the model in its clients' bodies."""
    root: str = ""
    """Folder or hub id of its weights."""
    engine: str = ""
    version: str = ""
    """Of the engine."""
    max_model_len: int = 0
    """Longest prompt plus answer, in tokens."""
    return_seconds: float = 0.0
    """How long a request may wait for it when it is gone, to resume when it is back; 0: not."""
    migration_limit: int = 0
    """How often a request may do so."""
    capacity: int = 0
    """Answers that run or wait at once."""
    longest_token: int = 0
    """Characters of the longest token; 0 if it is not known."""
    is_resumable: bool = False
    """Whether clients may resume every stream, and not only those that request it."""
    resume_window: int = 0
    """Seconds that an answer is kept without its client; 0 to keep none."""


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """What an engine implementation is built from; the part of the plan that a worker gets."""

    model: str
    """Local folder, hub id or, before it is fetched, s3:// prefix; empty for an engine that needs
    none."""
    name: str = ""
    """Triton's name of the model: one of its names in OpenAI bodies."""
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
    """Whether deltas carry the ids of their tokens, so that another worker can resume from them."""
    structure_bounds: StructureBounds = DEFAULT_BOUNDS
    """Bounds of the structured outputs that a request may have compiled."""
    fast_paths: bool = True
    """Whether the engine makes answers cheaper than by its public ways."""

    @property
    def copies(self) -> int:
        """How many of the model there are in one worker, each on devices of its own."""
        return int(self.arguments.get("data_parallel_size", 1))

    @property
    def served_names(self) -> tuple[str, ...]:
        """What clients may call the model, besides its name in Triton's repository."""
        names = self.arguments.get("served_model_name") or DEFAULT_MODEL_NAME
        return (names,) if isinstance(names, str) else tuple(names)
