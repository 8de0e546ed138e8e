"""DeepSpeed and Transformers-NeuronX, which LMI has retired but still documents.

Source: LMI's user guides of 0.27 (DeepSpeed) and 0.34 (Transformers-NeuronX).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lmi_backend.options.kinds import BOOL, ITEMS, JSON, TEXT, Kind, choice, float_type, whole
from lmi_backend.options.option import Option, Scope, adapter_of, same

if TYPE_CHECKING:
    from collections.abc import Callable

_Row = tuple[str, Kind[Any], str, str]

_NEURONX: tuple[_Row, ...] = (
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
_NEURONX_WITH_VARIABLE: tuple[tuple[_Row, str], ...] = (
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


def _option(
    scope: Scope,
    row: _Row,
    *,
    variable: str = "",
    convert: Callable[[Any], Any] = same,
) -> Option[Any]:
    name, kind, argument, meaning = row
    return Option(
        name=f"option.{name}",
        kind=kind,
        default=None,
        scope=scope,
        env=(variable,) if variable else (),
        engine_args={adapter_of(scope): argument},
        convert=convert,
        help=meaning,
    )


ROWS: Final = (
    _option(
        "deepspeed",
        ("max_tokens", whole(1), "max_model_len", "Longest prompt plus answer, in tokens."),
    ),
    _option(
        "deepspeed",
        (
            "low_cpu_mem_usage",
            BOOL,
            "low_cpu_mem_usage",
            "Load without a copy in host memory.",
        ),
    ),
    *(_option("neuronx", row) for row in _NEURONX),
    *(_option("neuronx", row, variable=name) for row, name in _NEURONX_WITH_VARIABLE),
    _option(
        "neuronx",
        ("quantize", choice("static_int8"), "quantized", "Weights in int8."),
        convert=bool,
    ),
    _option("neuronx", ("load_in_8bit", BOOL, "quantized", "Older name of static_int8.")),
    _option(
        "neuronx",
        ("amp", float_type(), "dtype", "Older name of option.dtype."),
    ),
)
