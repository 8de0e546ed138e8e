"""What we decided to run, and the same as it may be shown to people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from lmi_backend.engine_config import ClientSettings, EngineConfig, RequestLimits
from lmi_backend.redaction import Redactor, redact_value, secrets_of

if TYPE_CHECKING:
    from lmi_backend.options.spec import Mode
    from lmi_backend.sizing.memory import MemoryEstimate


@dataclass(frozen=True)
class Degrees:
    tensor: int
    pipeline: int
    memory: MemoryEstimate | None = None

    @property
    def size(self) -> int:
        """Devices of one worker."""
        return self.tensor * self.pipeline


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """How many workers there are, and what each of them spans."""

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
    """Further arguments for it."""
    device_groups: tuple[tuple[str, ...], ...] = ((),)
    """One group a worker, as CUDA_VISIBLE_DEVICES spells them on each of its nodes; an empty one
    runs on the CPU."""
    device_share: float = 0.0
    """Share of each device's memory that a worker takes, at most 1. It is 0 on the CPU, and for a
    model's own handler whose share nobody says."""

    @property
    def workers(self) -> int:
        return len(self.device_groups)

    @property
    def world_size(self) -> int:
        """Devices, or processes on a CPU, that one replica takes."""
        return self.tensor_parallel_degree * self.pipeline_parallel_degree

    @property
    def processes(self) -> int:
        """Processes that one replica is started as."""
        return self.world_size if self.mode == "mpi" else 1


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How the workers are started and watched, and how often their streams are sent."""

    python: str
    environment: Mapping[str, str] = field(default_factory=dict)
    load_timeout: int = 1800
    """Seconds for a worker to become ready."""
    hang_timeout: int = 120
    """Seconds without a step after which an engine that has requests is dead; 0: never."""
    restart_limit: int = 10
    """Deaths of a worker soon after each other, after which it is not started again."""
    spare_workers: int = 0
    """Workers that have a spare: a process that has prepared all it can to replace them."""
    spare_bytes: int = 0
    """What a spare takes for its model, which it has loaded if that is left; 0: it loads none."""
    parallel_loading: bool = False
    stream_interval: int = 1
    """Tokens a streamed response has at least."""
    stream_flush: float | None = None
    """Seconds in which the tokens of a stream share a response; None to go by the load."""


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """When the load starts and stops workers."""

    min_workers: int | None = None
    """Workers that always run; None for all: then the load starts and stops none."""
    most_waiting: int = 2
    """Answers that may wait before one more worker is started."""
    max_idle_time: int = 60
    """Seconds without a request after which a worker above `min_workers` is stopped."""


@dataclass(frozen=True)
class Explanation:
    """What a plan says of itself, collected while it is made."""

    notes: list[str] = field(default_factory=list)
    """Where it differs from what was written: ignored, capped, left unused, in doubt."""
    reasons: list[str] = field(default_factory=list)
    ignored: dict[str, str] = field(default_factory=dict)
    """Option that this plan has no use for, though its engine has, to the reason."""

    def ignore(self, option: str, reason: str) -> None:
        """Note that an option that was set does nothing here."""
        self.notes.append(f"{option} is ignored: {reason}")
        self.ignored[option] = reason


@dataclass(frozen=True, kw_only=True)
class EnginePlan:
    """How one model is served: which engine, on what, with which limits, and why."""

    engine: str
    config: EngineConfig
    launch: Launch
    parallel: Parallel = Parallel()
    memory: MemoryEstimate | None = None
    """What is expected on each device; None where the model or the device is not known."""
    limits: RequestLimits = field(default_factory=RequestLimits)
    scaling: Scaling = Scaling()
    log_requests: bool = False
    is_unread: bool = False
    """Whether the model could not be fetched, so that the plan does without its size."""
    notes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    ignored: Mapping[str, str] = field(default_factory=dict)

    @property
    def what(self) -> str:
        ranks = f", {self.parallel.processes} MPI ranks" if self.parallel.mode == "mpi" else ""
        return f"engine {self.engine}{ranks}"

    @property
    def min_workers(self) -> int:
        least, most = self.scaling.min_workers, self.parallel.workers
        return most if least is None else least

    @property
    def num_workers(self) -> str:
        """The number of workers, or the least and the most, as people read it."""
        least, most = self.min_workers, self.parallel.workers
        return str(most) if least == most else f"{least} to {most}"

    @property
    def worker_requests(self) -> int:
        """Requests that run at once in one worker; `max_running` is each copy's."""
        return self.limits.max_running * self.config.copies

    @property
    def max_requests(self) -> int:
        """Requests that run at once over all workers."""
        return self.worker_requests * self.parallel.workers

    def secrets(self) -> Iterator[tuple[str, str]]:
        """Yield name and value of what nobody may read in a log: all of option.env, and others."""
        for name, value in _flat(self):
            if name in _WITH_SECRETS:
                yield from secrets_of(name, value)

    def as_dict(self) -> dict[str, object]:
        """Return it as plain values for JSON, the fields of all groups side by side."""
        plain = dict(_flat(self))
        plain["engine_arguments"] = plain.pop("arguments")
        # Known when a model is loaded.
        del plain["name"]
        # The notes say it.
        del plain["ignored"]
        plain["structure_bounds"] = asdict(self.config.structure_bounds)
        if self.memory is not None:
            plain["memory"] = self.memory.as_dict()
        return plain


_Group = EnginePlan | Parallel | RequestLimits | Scaling | Launch | EngineConfig | ClientSettings
_WITH_SECRETS = frozenset({"environment", "passthrough", "arguments", "front_end", "properties"})


def _flat(group: _Group) -> Iterator[tuple[str, object]]:
    """Yield name and value of each field, those of the groups in it too."""
    for each in fields(group):
        value = getattr(group, each.name)
        if isinstance(value, _Group):
            yield from _flat(value)
        else:
            yield each.name, value


T = TypeVar("T")


def without_secrets(plan: EnginePlan, environment: Mapping[str, str]) -> EnginePlan:
    """Return a plan without the secrets in it, and without those of an environment."""
    return _hidden(plan, Redactor(environment, plan.secrets()))


def _hidden(group: T, redact: Redactor) -> T:
    values = {each.name: getattr(group, each.name) for each in fields(group)}  # type: ignore[arg-type]
    hidden = {
        name: _hidden(value, redact)
        if is_dataclass(value) and not isinstance(value, type)
        else redact.each(redact_value(name, value))
        for name, value in values.items()
    }
    return replace(group, **hidden)  # type: ignore[type-var]
