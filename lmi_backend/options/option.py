"""What one row of the option table says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar, cast

from lmi_backend.options.engine_spec import COMMON_SCOPES, SPECS, Device, EngineSpec, Implementation

if TYPE_CHECKING:
    from types import ModuleType

    from lmi_backend.options.kinds import Kind

T = TypeVar("T")

StatusWord = Literal["mapped", "passed", "ignored", "refused"]

PREFIX = "option."

_DEVICES: Final[dict[Device, str]] = {"gpu": "GPUs", "nc": "Neuron cores"}

NOTHING: Final = object()
"""What `convert` returns for a value without effect on the engine."""


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
    scope: str = "common"
    """The engine it belongs to, or a group of options that some or all engines read."""
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
    """Implementation to its own argument; dots go into an object: `kv_cache_config.dtype`. Of a
    common option, the implementation says it (`Implementation.arguments`)."""
    convert: Callable[[T], Any] = same
    """The value as the engine takes it."""
    lmi_default: T | None = None
    """What LMI's guide documents for the engine: handed on when nobody sets it."""
    unused: str = ""
    """Why it does nothing where the engine has no such argument, if more can be said."""
    device: Device | None = None
    """The device it concerns, where engines on others ignore it."""
    else_ignored: str = ""
    """Why a value that cannot be read is ignored, where LMI does so; else it is refused."""
    status: Literal["mapped", "ignored", "refused"] = "mapped"
    reason: str = ""
    """Why it is ignored, or what to use instead of a refused one."""
    harmless: tuple[T, ...] = ()
    """Values of a refused option that have no effect, and so are only ignored."""

    @property
    def is_prefixed(self) -> bool:
        """Whether it is one of LMI's `option.` keys rather than a key of its server."""
        return self.name.startswith(PREFIX)

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines this row speaks of."""
        return tuple(name for name, spec in SPECS.items() if spec.reads(self.scope))

    @property
    def variable(self) -> str:
        """The environment variable, OPTION_X or SERVING_X; empty if there can be none."""
        if self.prefixed_env:
            return self.prefixed_env
        if self.is_prefixed:
            stem = self.name.removeprefix(PREFIX)
            return f"OPTION_{stem.upper() if stem.islower() else stem}"
        return "" if "." in self.name else f"SERVING_{self.name.upper()}"

    @property
    def variables(self) -> tuple[str, ...]:
        """All environment variables that set it."""
        own = (self.variable,) if self.variable else ()
        return (*own, *self.env, *self.inverse_env, *self.overriding_env)

    def argument_of(self, implementation: Implementation) -> str:
        """Return the implementation's own name for it; empty if it has none."""
        own = implementation.arguments if self.scope in COMMON_SCOPES else {}
        return self.engine_args.get(implementation.name) or own.get(self.name, "")

    def can_read(self, text: str) -> bool:
        """Tell whether a text is one of its values."""
        try:
            self.kind.parse(text.strip())
        except ValueError:
            return False
        return True

    def is_harmless(self, text: str) -> bool:
        """Tell whether a text says of a refused option what has no effect."""
        return self.can_read(text) and self.kind.parse(text.strip()) in self.harmless

    def status_under(self, engine: str) -> Status:
        """Return what becomes of it when the model runs on an engine the row speaks of."""
        if self.status != "mapped":
            return Status(self.status, self.reason)
        spec = SPECS[engine]
        if reason := spec.unused.get(self.name) or self._unused_on(spec):
            return Status("ignored", reason)
        if argument := self.argument_of(spec.implementation):
            return Status("mapped", f"{spec.implementation.name} {argument}")
        if self.plan_field:
            return Status("mapped", f"plan {self.plan_field}")
        return Status("ignored", self.unused or f"{engine} has nothing like it")

    def _unused_on(self, spec: EngineSpec) -> str:
        if self.device in (None, spec.implementation.device):
            return ""
        engines = (
            each.name for each in SPECS.values() if each.implementation.device == self.device
        )
        return f"on {_DEVICES[self.device or 'gpu']} only these engines run: {', '.join(engines)}"


AnyOption: TypeAlias = Option[Any]
"""A row with values of any type."""


@dataclass(frozen=True)
class ArgumentRows:
    """Writes the rows of options that are arguments of an implementation, or keys of one."""

    scope: str
    implementation: str
    within: str = ""
    """The argument that is an object and holds them, with a dot; empty for arguments themselves."""

    def __call__(
        self,
        name: str,
        kind: Kind[T],
        meaning: str,
        *,
        default: T | None = None,
        to: str = "",
        **more: Any,
    ) -> Option[T]:
        """Return a row of an option that is handed on `to` an argument, or to one of its name."""
        return Option(
            name=PREFIX + name,
            kind=kind,
            default=cast("T", default),
            scope=self.scope,
            engine_args={self.implementation: self.within + (to or name)},
            help=meaning,
            **more,
        )


def rows_in(module: ModuleType) -> Iterator[AnyOption]:
    """Yield the rows that a module of the table declares, alone or in tuples, in their order."""
    for value in vars(module).values():
        if isinstance(value, Option):
            yield value
        elif isinstance(value, tuple):
            yield from (row for row in value if isinstance(row, Option))
