"""What an engine is, what an option is, and what a user wrote.

An engine's facts stand once: `SPEC`, in `table/<engine>.py`. An engine is what LMI's documents call
a backend, with options and defaults of its own. An implementation is what runs it here. Two engines
may share one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar, cast

from lmi_backend.errors import OptionError
from lmi_backend.printable import printable
from lmi_backend.redaction import masked, secrets_of

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from lmi_backend.options.kinds import Kind


Mode = Literal["python", "mpi"]
Device = Literal["gpu", "nc"]
"""LMI's names for what an engine computes on where it can: GPUs, or Neuron cores."""
Ignore = Callable[[str, str], None]
"""Takes the name of an option that was set and does nothing, and why."""
Finish = Callable[["LmiOptions", dict[str, Any], list[str], Ignore], None]
"""Changes an engine's arguments in place, given the options; adds reasons."""
Refuse = Callable[["LmiOptions", str], None]
"""Refuses what the library has no more, given the options and the model's place."""

CUSTOM: Final = "custom"
"""Stands for the engine where the model's own handler answers every request."""

FEATURES: Final = "SERVING_FEATURES"
"""LMI's images say in this variable which engine they hold."""

COMMON_SCOPES: Final = frozenset({"common", "server", "sessions", "partition", "other handlers"})
"""Groups of options that every engine reads."""


@dataclass(frozen=True)
class ArgumentSource:
    """Where a library is, and who says what arguments it takes."""

    package: str
    file: str
    """One that the package alone has, relative to it."""
    version_file: str
    query: str = ""
    """The module that reads from the library what it takes, in the workers' interpreter; empty for
    none. It writes the answer to the file that its argument names."""
    has_flags: bool = False
    """Whether text sets an argument by a flag."""
    other_models: tuple[str, str] = ("", "")
    """Another library whose models it serves too, and the files of their classes."""


@dataclass(frozen=True, kw_only=True)
class Implementation:
    """What runs an engine."""

    name: str
    variant: str = ""
    """What makes another engine of the same library: where it runs, by a plugin of its own."""
    title: str
    """As its makers write it."""
    engine: str
    """The class that generates, as "module:Class"."""
    follower: str = ""
    """What the ranks after the first run, as "module:Class"."""
    node: str = ""
    """What a further machine runs where a worker spans several without MPI, as "module:Class"."""
    library: str = ""
    """The module that the workers' interpreter must be able to import; empty for none."""
    source: ArgumentSource | None = None
    """None where the library's arguments are not options under their own names."""
    running: str
    """Its argument for requests at once."""
    takes_degrees: bool = True
    """Whether it takes tensor_parallel_size and pipeline_parallel_size."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Name of a common option to the engine's own argument."""
    finish: Finish | None = None
    """What the option table cannot say about the arguments."""
    cpu_cache: tuple[str, str] | None = None
    """Arguments for the tokens of a KV-cache block and the number of blocks, on the CPU."""
    counts_memory_as_vllm: bool = False
    """Whether its memory is what the arithmetic of vLLM's releases makes of it."""
    fetches_adapters: bool = False
    """Whether it fetches a LoRA adapter that is named by its hub id."""
    prepares: bool = False
    """Whether most of its start takes no memory of a device, so that a spare can do it."""
    takes_memory: bool = True
    """Whether it takes its share of a device's memory for any model."""
    needs_model: bool = True
    takes_any_option: bool = False
    """Whether it judges options itself that nobody knows."""
    device: Device = "gpu"
    one_process: str = ""
    """Why a worker is always one process; empty where MPI ranks may share a model."""
    lone_rank: str = ""
    """Why a group of one rank is started as a plain process, without mpirun; empty if it is not."""
    pipeline_modes: frozenset[Mode] = frozenset({"python", "mpi"})
    """Modes in which the layers may be split into stages."""
    oldest: tuple[str, str] = ("", "")
    """The first release of the library that runs here, and what those before it lack."""
    refuse: Refuse | None = None
    pools: bool = False
    """Whether it makes vectors as well as text."""
    takes_encoder_decoders: bool = True
    reads_checkpoints: bool = False
    """Whether it reads a model's folder as trainers leave it: weights, tokenizer, config.json."""
    reads_mistral: bool = False
    """Whether it reads models in Mistral's own format: params.json instead of config.json."""
    image: str = ""
    """Target of the Dockerfile whose image has it, for GPUs; empty where there is none."""
    refused_architectures: frozenset[str] = frozenset()
    """Models of LMI's that the library does not serve."""
    ray_argument: str = ""
    """The argument that lets one process span machines over Ray; empty where only MPI does."""
    cpu_pipeline: str = ""
    """What goes wrong with pipeline parallelism on the CPU, which is why it is refused there."""
    core_variables: Callable[[int, int], dict[str, str]] | None = None
    """Gives a worker's variables by its index and tensor parallel degree."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """Variable that gives the first port of each worker to its default; 0 where it has none."""

    @property
    def key(self) -> str:
        """What plans call it."""
        return f"{self.name}-{self.variant}" if self.variant else self.name


@dataclass(frozen=True, kw_only=True)
class EngineSpec:
    """What LMI calls a backend: how it is chosen, and its defaults."""

    name: str
    title: str
    order: int
    """Place in lists. The first is LMI's default; a key of several belongs to the earliest."""
    implementation: Implementation
    why_implementation: str = ""
    """Why it runs on an implementation of another name."""

    rolling_batch: str = ""
    """The value of option.rolling_batch that names it."""
    entry_points: tuple[str, ...] = ()
    """Handlers of LMI's that mean it."""
    engine_word: str = ""
    """The value of LMI's `engine` that means it."""
    feature: str = ""
    """Its name in SERVING_FEATURES."""
    unbatched: str = ""
    """What rolling_batch=disable is in LMI, if that means it."""
    mpi_if_named: bool = False
    """Whether LMI starts it under MPI where rolling_batch names it."""
    why_mpi: str = ""
    """Why LMI always starts it under MPI; empty if it does not."""

    scopes: tuple[str, ...] = ()
    """Groups of options it reads in addition to its own and the common ones."""
    unused: Mapping[str, str] = field(default_factory=dict)
    """Name of a common option to why it does nothing here."""
    utilization: float = 0.9
    """Share of a device's memory that it takes where nobody says."""
    utilization_option: str = ""
    """The option that says another share."""
    length_option: str = "option.max_model_len"
    """The option that bounds prompt and answer together, in tokens."""
    block_option: str = "option.block_size"
    """The option for the tokens of a KV-cache block."""
    block_size: int = 16
    """The tokens of a KV-cache block on a GPU where nobody says."""
    why_all_devices: str = ""
    """Why a model takes all devices, not the fewest it fits on; empty if it does not."""
    max_running: int = 0
    """LMI's default for requests at once, where it differs from that of option.max_…; else 0."""

    @property
    def how_to_choose(self) -> str:
        """What to write so that the model runs on it."""
        named = f"option.rolling_batch={'disable' if self.unbatched else self.rolling_batch}"
        is_default = self.name == default_engine()
        # The default engine needs no word for it.
        return named if is_default or not self.feature else f"{named}, or {FEATURES}={self.feature}"

    def reads(self, scope: str) -> bool:
        """Tell whether options of a scope mean something to it."""
        return scope in COMMON_SCOPES or scope == self.name or scope in self.scopes


SPECS: Final[dict[str, EngineSpec]] = {}
"""Every engine by name, in their order; `lmi_backend.options.table` fills it."""


def implementation_of(engine: str) -> str:
    """Return the name of the implementation that runs an engine."""
    return SPECS[engine].implementation.name


def implementations() -> dict[str, Implementation]:
    """Return every implementation by what plans call it, in the order of their engines."""
    return {spec.implementation.key: spec.implementation for spec in SPECS.values()}


def default_engine() -> str:
    """Return what LMI runs where nothing names an engine."""
    return next(iter(SPECS))


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
    """

    name: str
    kind: Kind[T]
    default: T | None = None
    """What the plan uses when nobody set it, if that is not what its kind has for nothing."""
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

    @property
    def printed_default(self) -> Any:
        """The default for people; None where `help` has it, as more than a value."""
        if "Default:" in self.help:
            return None
        return self.default if self.lmi_default is None else self.lmi_default

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines this row speaks of."""
        return tuple(name for name, spec in SPECS.items() if spec.reads(self.scope))

    @property
    def variable(self) -> str:
        """The environment variable, OPTION_X or SERVING_X; empty if there can be none."""
        if self.prefixed_env:
            return self.prefixed_env
        if self.name.startswith(PREFIX):
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
        """Tell whether a text turns a refused option off, which has no effect."""
        return self.can_read(text) and self.kind.parse(text.strip()) is False

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
            return Status("mapped", f"used as {self.plan_field}")
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
            default=default,
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


_LONGEST = 200
# Of a longer value no more is looked through for secrets: what is shown is its beginning.
_MASKED = 16_384


@dataclass(frozen=True)
class WrittenSetting:
    """A key and value as written, with the place for error messages.

    `origin` is "serving.properties:7" or "environment".
    """

    name: str
    value: str
    origin: str

    @cached_property
    def redacted(self) -> str:
        """The value for people: secrets masked, long texts cut, on one line."""
        text = masked(self.name, self.value[:_MASKED])
        line = printable(text[:_LONGEST], _LONGEST)
        return line if len(text) <= _LONGEST else f"{line}… ({len(self.value)} characters)"

    @property
    def written(self) -> str:
        """Name and value for people."""
        return f"{printable(self.name)}={self.redacted}"

    def error(self, problem: str, accepted: str = "") -> OptionError:
        """Build the error for it."""
        return OptionError(
            problem, option=self.name, value=self.redacted, origin=self.origin, accepted=accepted
        )

    def __str__(self) -> str:
        return f"{self.origin}: {self.written}"


@dataclass(frozen=True)
class Classification:
    """A setting and what becomes of it."""

    setting: WrittenSetting
    status: Status

    def __str__(self) -> str:
        return f"{self.setting} is {self.status.word}: {self.status.detail}"


@dataclass(frozen=True)
class EngineChoice:
    """An engine, how its processes are started, and why."""

    engine: str
    mode: Mode
    reasons: tuple[str, ...]

    @property
    def spec(self) -> EngineSpec:
        """What the engine is."""
        return SPECS[self.engine]


def default_choice() -> EngineChoice:
    """Return LMI's own choice, where nothing names another."""
    return EngineChoice(default_engine(), "python", ())


@dataclass(frozen=True, kw_only=True)
class LmiOptions:
    """What the user said, checked. Index it with an `Option` to get the typed value."""

    folder: Path
    """Where serving.properties is; relative paths start here."""
    choice: EngineChoice = field(default_factory=default_choice)
    values: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, WrittenSetting] = field(default_factory=dict)
    passthrough: Mapping[str, WrittenSetting] = field(default_factory=dict)
    """Engine argument name to setting, for keys that only the engine can judge."""
    supposed_release: str = ""
    """The engine's release to plan for; empty for the one that is installed or recorded."""
    for_another_machine: bool = False
    """Whether the model is for another machine, which may have folders that are not here."""
    classifications: tuple[Classification, ...] = ()
    """Every setting of every source, in their order, with what becomes of it."""

    def __getitem__(self, option: Option[T]) -> T:
        empty = option.kind.empty if option.default is None else option.default
        return cast("T", self.values.get(option.name, empty))

    def is_set(self, option: AnyOption) -> bool:
        """Tell whether the user set it."""
        return option.name in self.values

    def error(self, option: AnyOption, problem: str) -> OptionError:
        """Build the error for a value that is well formed but cannot be used."""
        setting = self.settings.get(option.name)
        if setting is None:
            return OptionError(problem, option=option.name, origin="default")
        return setting.error(problem)

    def secrets(self) -> Iterator[tuple[str, str]]:
        """Yield name and value of each secret in what was written, used or not."""
        for each in (classification.setting for classification in self.classifications):
            yield from secrets_of(each.name, each.value)

    def locate(self, error: OptionError) -> OptionError:
        """Return an engine's complaint about an option with the place it was written at."""
        name = error.option.removeprefix(PREFIX)
        setting = self.passthrough.get(name) or self.settings.get(error.option)
        return setting.error(error.problem) if setting else error
