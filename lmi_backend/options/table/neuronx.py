"""Transformers-NeuronX, which LMI has retired but still documents; optimum-neuron runs it here.

Source: LMI's user guide of 0.34.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lmi_backend.options.engine_spec import Cache, EngineSpec, Implementation, Sizes
from lmi_backend.options.kinds import BOOL, ITEMS, JSON, TEXT, Kind, choice, float_type, whole
from lmi_backend.options.option import AnyOption, Option, same

if TYPE_CHECKING:
    from collections.abc import Callable


def _visible_cores(index: int, degree: int) -> dict[str, str]:
    """Return the Neuron cores of a worker, and two threads for each, as LMI has it."""
    first = index * degree
    return {
        "NEURON_RT_VISIBLE_CORES": f"{first}-{first + degree - 1}",
        "OMP_NUM_THREADS": str(2 * degree),
    }


_ONE_PROCESS: Final = "one process drives all Neuron cores"
_OTHER_DEVICES: Final = "it runs on Neuron cores; use the nc. form"

SPEC: Final = EngineSpec(
    name="neuronx",
    title="NeuronX",
    order=5,
    implementation=Implementation(
        name="neuronx",
        title="NeuronX",
        engine="lmi_backend.engines.transformers.neuronx:NeuronxEngine",
        library="optimum.neuron",
        sizes=Sizes("batch_size"),
        arguments={
            "option.trust_remote_code": "trust_remote_code",
            "option.dtype": "dtype",
        },
        device="nc",
        one_process=_ONE_PROCESS,
        pipeline_modes=frozenset(),
        cache=Cache(
            "Neuron's compiler",
            "NEURON_COMPILE_CACHE_URL",
            "/var/tmp/neuron-compile-cache",  # noqa: S108  its compiler's default
        ),
        core_variables=_visible_cores,
    ),
    rolling_batch="tnx",
    entry_points=("djl_python.transformers_neuronx",),
    unused={
        **dict.fromkeys(
            ("engine", "option.mpi_mode", "option.mpi_hostfile", "option.mpi_options"), _ONE_PROCESS
        ),
        **{
            f"{device}.{bound}": _OTHER_DEVICES
            for device in ("gpu", "cpu")
            for bound in ("minWorkers", "maxWorkers")
        },
    },
)

_Row = tuple[str, Kind[Any], str, str]

_ROWS: tuple[_Row, ...] = (
    ("n_positions", whole(1), "sequence_length", "Longest prompt plus answer, in tokens."),
    ("neuron_optimize_level", whole(1, 3), "compiler.optlevel", "Compiler's -O level."),
    (
        "enable_mixed_precision_accumulation",
        BOOL,
        "compiler.mixed_precision_accumulation",
        "Accumulate in float32.",
    ),
    ("enable_saturate_infinity", BOOL, "compiler.saturate_infinity", "Largest value, not inf."),
    ("low_cpu_mem_usage", BOOL, "low_cpu_mem_usage", "Load without a copy in host memory."),
    ("compiled_graph_path", TEXT, "compile_cache_url", "Where compiled graphs are kept."),
    ("draft_model_compiled_path", TEXT, "draft_compile_cache_url", "The same for the draft model."),
    ("speculative_draft_model", TEXT, "speculative_config.model", "Draft model."),
    (
        "speculative_length",
        whole(1),
        "speculative_config.num_speculative_tokens",
        "Drafted tokens.",
    ),
    (
        "draft_model_tp_size",
        whole(1),
        "speculative_config.draft_tensor_parallel_size",
        "Tensor parallel degree of the draft model.",
    ),
    ("fuse_qkv", BOOL, "fused_qkv", "Fuse the three projections of attention."),
)
_ROWS_WITH_VARIABLE: tuple[tuple[_Row, str], ...] = (
    (
        ("context_length_estimate", ITEMS, "context_encoding_buckets", "Prompt lengths compiled."),
        "NEURON_CONTEXT_LENGTH_ESTIMATE",
    ),
    (
        ("on_device_embedding", BOOL, "on_device_embedding", "Embed on the device."),
        "NEURON_ON_DEVICE_EMBEDDING",
    ),
    (
        ("on_device_generation", JSON, "on_device_sampling", "Sample on the device."),
        "NEURON_ON_DEV_GENERATION",
    ),
    (
        ("sequence_parallel", BOOL, "sequence_parallel_enabled", "Split norms over the sequence."),
        "NEURON_SEQUENCE_PARALLEL",
    ),
)


def _option(row: _Row, *, variable: str = "", convert: Callable[[Any], Any] = same) -> AnyOption:
    name, kind, argument, meaning = row
    return Option(
        name=f"option.{name}",
        kind=kind,
        default=None,
        scope="neuronx",
        env=(variable,) if variable else (),
        engine_args={"neuronx": argument},
        convert=convert,
        help=meaning,
    )


ROWS: Final = (
    *(_option(row) for row in _ROWS),
    *(_option(row, variable=name) for row, name in _ROWS_WITH_VARIABLE),
    _option(("quantize", choice("static_int8"), "quantized", "Weights in int8."), convert=bool),
    _option(("load_in_8bit", BOOL, "quantized", "Older name of static_int8.")),
    _option(("amp", float_type(), "dtype", "Older name of option.dtype.")),
)
