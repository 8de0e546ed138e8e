"""What an engine is. Its facts stand once: `SPEC`, at the head of `table/<engine>.py`.

An engine is what LMI's documents call a backend, with words and defaults of its own; an
implementation is what runs it here. Two engines may share one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from lmi_backend.options.resolve import LmiOptions

Mode = Literal["python", "mpi"]
Device = Literal["gpu", "nc"]
"""LMI's words for what an engine computes on where it can: GPUs, or Neuron cores."""
Ignore = Callable[[str, str], None]
"""Takes the name of an option that was set and does nothing, and why."""
Finish = Callable[["LmiOptions", dict[str, Any], list[str], Ignore], None]
"""Changes an engine's arguments in place, given the options; adds reasons."""

CUSTOM: Final = "custom"
"""Stands for the engine where the model's own handler answers every request."""

FEATURES: Final = "SERVING_FEATURES"
"""LMI's images say in this variable which engine they hold."""

COMMON_SCOPES: Final = frozenset({"common", "server", "sessions", "partition", "other handlers"})
"""Groups of options that every engine reads."""


@dataclass(frozen=True)
class ArgumentSource:
    """Where a library declares the arguments of its engine."""

    package: str
    file: str
    """Relative to the package."""
    classes: tuple[str, ...]
    """Their arguments together, and those of their bases in the file; the first one prevails."""
    version_file: str
    aliases: str = ""
    """Files, by a pattern relative to the package, that name types by which arguments are
    declared."""
    has_flags: bool = False
    """Whether text sets an argument by a flag, whose name stands in the same file."""


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
    takes_memory: bool = True
    """Whether it takes its share of a device's memory, whatever the model."""
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
    pools: bool = False
    """Whether it makes vectors as well as text."""
    takes_encoder_decoders: bool = True
    reads_mistral: bool = False
    """Whether it reads models in Mistral's own form: params.json instead of config.json."""
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

    rolling_batch: str
    """The value of option.rolling_batch that names it."""
    entry_points: tuple[str, ...] = ()
    """Handlers of LMI's that mean it."""
    engine_word: str = ""
    """The value of LMI's `engine` that means it."""
    feature: str = ""
    """Its word in SERVING_FEATURES."""
    unbatched: str = ""
    """What rolling_batch=disable is in LMI, if that means it."""
    mpi_if_named: bool = False
    """Whether LMI starts it under MPI where rolling_batch names it."""
    why_mpi: str = ""
    """Why LMI starts it under MPI whatever names it; empty if it does not."""

    scopes: tuple[str, ...] = ()
    """Groups of options it reads beside its own and the common ones."""
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
    """Return every implementation by name, in the order of their engines."""
    return {spec.implementation.name: spec.implementation for spec in SPECS.values()}


def default_engine() -> str:
    """Return what LMI runs where nothing names an engine."""
    return next(iter(SPECS))
