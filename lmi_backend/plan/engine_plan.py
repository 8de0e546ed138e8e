"""What we decided to run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from lmi_backend.redaction import secrets_of
from lmi_backend.structures import DEFAULT_BOUNDS, StructureBounds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lmi_backend.options.engine_spec import Mode
    from lmi_backend.sizing.memory import MemoryEstimate

Dialect = Literal["legacy", "async"]


@dataclass(frozen=True, kw_only=True)
class EnginePlan:
    """How one model is served: which engine, on what, with which limits, and why."""

    engine: str
    """Name in the engine registry."""
    model: str
    """Local folder, hub id or s3:// prefix."""
    python: str
    """Interpreter of the workers."""
    mode: Mode = "python"
    """Whether a worker is one process, or a group of MPI ranks."""
    tensor_parallel_degree: int = 1
    pipeline_parallel_degree: int = 1
    nodes: int = 1
    """Machines one worker spans."""
    hosts: tuple[str, ...] = ()
    """The names of these machines, this one first; none where one is enough."""
    mpirun: str = ""
    """Open MPI's launcher; empty in Python mode, and where there is none."""
    mpi_options: tuple[str, ...] = ()
    """Further words for it."""
    device_groups: tuple[tuple[str, ...], ...] = ((),)
    """One group a worker, as CUDA_VISIBLE_DEVICES spells them on each of its nodes; an empty one
    runs on the CPU."""
    memory: MemoryEstimate | None = None
    """What is expected on each device; None where the model or the device is not known."""
    max_running: int = 256
    """Requests that one worker generates for at once."""
    queue_size: int = 1000
    """Requests that wait before one is refused."""
    tenant_weights: Mapping[str, int] = field(default_factory=dict)
    """Tenant to the answers it starts in its turn, where it is not 1."""
    load_timeout: int = 1800
    """Seconds for a worker to become ready."""
    request_timeout: int = 240
    """Seconds a request may run."""
    hang_timeout: int = 120
    """Seconds without a step after which an engine that has requests is dead; 0: never."""
    restart_limit: int = 10
    """Deaths of a worker soon after each other, after which it is not started again."""
    parallel_loading: bool = False
    log_requests: bool = False
    """Whether each request gets a line in the log."""
    max_message_size: int = 67_108_864
    """Bytes of the largest message between stub and worker."""
    structure_bounds: StructureBounds = DEFAULT_BOUNDS
    """What a request may ask of the compiler of structured outputs."""
    stream_interval: int = 1
    """Tokens a streamed response has at least."""
    stream_flush: float | None = None
    """Seconds in which the tokens of a stream share a response; None to go by the load."""
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
    engine_arguments: Mapping[str, Any] = field(default_factory=dict)
    """Typed arguments under the engine's own names."""
    passthrough: Mapping[str, str] = field(default_factory=dict)
    """Further arguments as text, which the engine itself reads and may refuse."""
    custom_file: str = ""
    """The user's own code, a Python file; empty for none."""
    custom_handler: str = "handle"
    """Name of the handler in it."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """All options as text, for the user's handler."""
    front_end: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the engine's own HTTP server, which reads OpenAI bodies."""
    adapters: Mapping[str, str] = field(default_factory=dict)
    """LoRA adapter name to folder."""
    adapter_roots: tuple[str, ...] = ()
    """Folders from which adapters may be loaded while serving; none where LoRA is off."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables added to the workers' environment."""
    notes: tuple[str, ...] = ()
    """Where it differs from what was written: ignored, capped, left unused, in doubt."""
    reasons: tuple[str, ...] = ()
    """Why it is as it is."""

    @property
    def workers(self) -> int:
        """Number of replicas."""
        return len(self.device_groups)

    @property
    def world_size(self) -> int:
        """Devices, or processes on a CPU, that one replica takes."""
        return self.tensor_parallel_degree * self.pipeline_parallel_degree

    @property
    def processes(self) -> int:
        """Processes that one replica is started as."""
        return self.world_size if self.mode == "mpi" else 1

    @property
    def what(self) -> str:
        """What a worker is, in a few words."""
        ranks = f", {self.processes} MPI ranks" if self.mode == "mpi" else ""
        return f"engine {self.engine}{ranks}"

    @property
    def worker_requests(self) -> int:
        """Requests that run at once in one worker; `max_running` is each data-parallel copy's."""
        copies: int = self.engine_arguments.get("data_parallel_size", 1)
        return self.max_running * copies

    @property
    def max_requests(self) -> int:
        """Requests that run at once over all workers."""
        return self.worker_requests * self.workers

    def secrets(self) -> Iterator[tuple[str, str]]:
        """Yield name and value of what nobody may read in a log: all of option.env, and others."""
        for given in ("environment", "passthrough", "engine_arguments", "front_end", "properties"):
            yield from secrets_of(given, getattr(self, given))

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, for JSON."""
        plain = asdict(self)
        if self.memory is not None:
            plain["memory"] |= {
                "num_blocks": self.memory.num_blocks,
                "num_tokens": self.memory.num_tokens,
            }
        return plain
