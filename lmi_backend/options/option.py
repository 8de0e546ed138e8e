"""What one row of the option table says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.options.kinds import Kind

T = TypeVar("T")

Scope = Literal[
    "common",
    "server",
    "vllm",
    "lmi-dist",
    "trtllm",
    "transformers",
    "deepspeed",
    "neuronx",
    "adapters",
    "speculative",
    "chat",
    "sessions",
    "embedding",
    "lmcache",
    "partition",
    "other handlers",
]
StatusWord = Literal["mapped", "passed", "ignored", "refused"]

PREFIX = "option."

ENGINES: Final = ("vllm", "lmi-dist", "trtllm", "transformers", "deepspeed", "neuronx", "echo")
"""What LMI's documents call backends, each with options of its own, and our echo."""

_VLLM = ("vllm", "lmi-dist")
_ENGINES_OF: Final[Mapping[Scope, tuple[str, ...]]] = {
    "vllm": _VLLM,
    "adapters": (*_VLLM, "trtllm", "transformers"),
    "speculative": _VLLM,
    "chat": _VLLM,
    "embedding": _VLLM,
    "lmcache": _VLLM,
    "lmi-dist": ("lmi-dist",),
    "trtllm": ("trtllm",),
    "transformers": ("transformers",),
    "deepspeed": ("deepspeed",),
    "neuronx": ("neuronx",),
}
_ADAPTERS: Final = {"lmi-dist": "vllm", "deepspeed": "transformers"}


def adapter_of(engine: str) -> str:
    """Return the adapter that runs an engine.

    LMI-Dist was vLLM started by MPI. DeepSpeed, which LMI retired, split Transformers' models
    between MPI ranks; Transformers does that itself now.
    """
    return _ADAPTERS.get(engine, engine)


NOTHING: Final = object()
"""What `convert` returns for a value that asks the engine for nothing."""


def same(value: Any) -> Any:
    """Hand a value on as it is."""
    return value


@dataclass(frozen=True)
class Status:
    """What becomes of an option under one engine."""

    word: StatusWord
    detail: str
    """Where it goes, why it is ignored, or what to use instead."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Option(Generic[T]):
    """One thing a user can set.

    A key may have several rows, each for engines of its own.
    `default` is what the plan uses when nobody set it; `None` leaves it to the engine.
    """

    name: str
    kind: Kind[T]
    default: T
    help: str
    scope: Scope = "common"
    aliases: tuple[str, ...] = ()
    """Other keys with the same meaning; two that differ are refused."""
    prefixed_env: str = ""
    """LMI's own spelling of the OPTION_ or SERVING_ variable, where it breaks the rule."""
    env: tuple[str, ...] = ()
    """Bare variables, best first, used when neither the file nor OPTION_* sets it."""
    inverse_env: tuple[str, ...] = ()
    """Bare variables that say the opposite of a truth value."""
    overriding_env: tuple[str, ...] = ()
    """Variables that win over the file."""
    plan_field: str = ""
    """What it decides in the plan, when it is not an argument of the engine."""
    engine_args: Mapping[str, str] = field(default_factory=dict)
    """Adapter to the engine's own argument; dots go into an object: `kv_cache_config.dtype`."""
    convert: Callable[[T], Any] = same
    """The value as the engine takes it."""
    lmi_default: T | None = None
    """What LMI's guide documents for the engine: handed on when nobody sets it."""
    unused_by: Mapping[str, str] = field(default_factory=dict)
    """Engine to why it does nothing there."""
    status: Literal["mapped", "ignored", "refused"] = "mapped"
    reason: str = ""
    """Why it is ignored, or what to use instead of a refused one."""
    harmless: tuple[T, ...] = ()
    """Values of a refused option that ask for nothing, and so are only ignored."""

    @property
    def is_prefixed(self) -> bool:
        """Whether it is one of LMI's `option.` keys rather than a key of its server."""
        return self.name.startswith(PREFIX)

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines this row speaks of."""
        return _ENGINES_OF.get(self.scope, ENGINES)

    @property
    def variable(self) -> str:
        """The environment form: OPTION_X or SERVING_X."""
        if self.prefixed_env:
            return self.prefixed_env
        if self.is_prefixed:
            stem = self.name.removeprefix(PREFIX)
            return f"OPTION_{stem.upper() if stem.islower() else stem}"
        return f"SERVING_{self.name.upper()}"

    def status_under(self, engine: str) -> Status:
        """Return what becomes of it when the model runs on an engine the row speaks of."""
        if self.status != "mapped":
            return Status(self.status, self.reason)
        if engine in self.unused_by:
            return Status("ignored", self.unused_by[engine])
        argument = self.engine_args.get(adapter_of(engine))
        if argument:
            return Status("mapped", f"{adapter_of(engine)} {argument}")
        if self.plan_field:
            return Status("mapped", f"plan {self.plan_field}")
        return Status("ignored", f"{engine} has nothing like it")
