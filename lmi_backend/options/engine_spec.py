"""What an engine is. Its facts stand once: `SPEC`, at the head of `table/<engine>.py`.

An engine is what LMI's documents call a backend, with options and defaults of its own. An
implementation is what runs it here. Two engines may share one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from lmi_backend.options.resolve import LmiOptions
    from lmi_backend.options.versions import Planned

Mode = Literal["python", "mpi"]
Device = Literal["gpu", "nc"]
"""LMI's names for what an engine computes on where it can: GPUs, or Neuron cores."""
Ignore = Callable[[str, str], None]
"""Takes the name of an option that was set and does nothing, and why."""
Finish = Callable[["LmiOptions", dict[str, Any], list[str], Ignore], None]
"""Changes an engine's arguments in place, given the options; adds reasons."""
Judge = Callable[["LmiOptions", str, "Planned"], list[str]]
"""Refuses what a release of the library has no more, given the options and the model's place; says
what is assumed."""

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


@dataclass(frozen=True)
class Sizes:
    """The engine's own names for what the plan decides; an empty one is not handed over."""

    running: str
    """Requests at once."""
    tensor: str = "tensor_parallel_size"
    pipeline: str = "pipeline_parallel_size"


@dataclass(frozen=True)
class Cache:
    """A folder that the library keeps where everybody may write, unless told otherwise."""

    owner: str
    """Whose it is, for errors."""
    variable: str
    """The environment variable that names another folder."""
    default: str


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
    sizes: Sizes
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
    one_request: str = ""
    """Why a worker generates for one request at a time; empty where it batches."""
    pipeline_modes: frozenset[Mode] = frozenset({"python", "mpi"})
    """Modes in which the layers may be split into stages."""
    oldest: tuple[str, str] = ("", "")
    """The first release of the library that runs here, and what those before it lack."""
    newest_read: str = ""
    """The newest release whose documents were read, if no release of the library was run."""
    judge: Judge | None = None
    """Where releases of the library differ in what they serve."""
    pools: bool = False
    """Whether it makes vectors as well as text."""
    takes_encoder_decoders: bool = True
    reads_checkpoints: bool = False
    """Whether it reads a model's folder as trainers leave it: weights, tokenizer, config.json."""
    reads_mistral: bool = False
    """Whether it reads models in Mistral's own format: params.json instead of config.json."""
    image: str = ""
    """Target of the Dockerfile whose image has it, for GPUs; empty where there is none."""
    quantised_already: frozenset[str] = frozenset()
    """Values of option.quantize for models that are quantised by it when they are loaded."""
    refused_architectures: frozenset[str] = frozenset()
    """Models of LMI's that the library does not serve."""
    ray_argument: str = ""
    """The argument that lets one process span machines over Ray; empty where only MPI does."""
    cpu_pipeline: str = ""
    """What goes wrong with pipeline parallelism on the CPU, which is why it is refused there."""
    cache: Cache | None = None
    core_variables: Callable[[int, int], dict[str, str]] | None = None
    """Gives a worker's variables by its index and tensor parallel degree."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """Variable that gives the first port of each worker to its default; 0 where it has none."""

    @property
    def key(self) -> str:
        """What plans call it."""
        return f"{self.name}-{self.variant}" if self.variant else self.name


@dataclass(frozen=True)
class OnPlugin:
    """Another engine, which runs the models where the workers' interpreter has a plugin."""

    engine: str
    group: str
    """Of entry points."""
    name: str
    why: str
    """What it is good for."""
    why_not: str
    """The reason if there is none."""
    list_variable: str = ""
    """The environment variable that lists the plugins that are loaded, where it is set."""


@dataclass(frozen=True, kw_only=True)
class EngineSpec:
    """What LMI calls a backend: how it is chosen, and its defaults."""

    name: str
    title: str
    order: int
    """Place in lists. The first is LMI's default; a key of several belongs to the earliest."""
    implementation: Implementation
    on_plugin: OnPlugin | None = None
    """Which engine runs its models where a plugin for it is installed."""
    why_implementation: str = ""
    """Why it runs on an implementation of another name."""

    rolling_batch: str = ""
    """The value of option.rolling_batch that names it; empty where it is another's `on_plugin`."""
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
        for spec in SPECS.values():
            if spec.on_plugin and spec.on_plugin.engine == self.name:
                plugin = f"{spec.on_plugin.group}: {spec.on_plugin.name}"
                return f"{spec.how_to_choose}, where the workers' interpreter has {plugin},"
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
