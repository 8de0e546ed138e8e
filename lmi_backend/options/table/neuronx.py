"""Transformers-NeuronX, which LMI has retired but still documents; optimum-neuron runs it here.

Source: LMI's user guide of 0.34.
"""

from __future__ import annotations

from typing import Final

from lmi_backend.options.engine_spec import Cache, EngineSpec, Implementation, Sizes
from lmi_backend.options.kinds import BOOL, ITEMS, JSON, TEXT, choice, float_type, whole
from lmi_backend.options.option import AnyOption, ArgumentRows


def _visible_cores(index: int, degree: int) -> dict[str, str]:
    """Return the Neuron cores of a worker, and two threads for each, as LMI has it."""
    first = index * degree
    return {
        "NEURON_RT_VISIBLE_CORES": f"{first}-{first + degree - 1}",
        "OMP_NUM_THREADS": str(2 * degree),
    }


_ONE_PROCESS: Final = "one process drives all Neuron cores"
_ONE_REQUEST: Final = "optimum-neuron's generate has no continuous batch"
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
        sizes=Sizes("", pipeline=""),
        arguments={
            "option.trust_remote_code": "trust_remote_code",
            "option.dtype": "dtype",
        },
        device="nc",
        one_process=_ONE_PROCESS,
        one_request=_ONE_REQUEST,
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
        **dict.fromkeys(("option.max_rolling_batch_size", "batch_size"), _ONE_REQUEST),
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

_argument: Final = ArgumentRows("neuronx", "neuronx")
_compiler: Final = ArgumentRows("neuronx", "neuronx", "compiler.")
_drafting: Final = ArgumentRows("neuronx", "neuronx", "speculative_config.")

ROWS: Final[tuple[AnyOption, ...]] = (
    _argument(
        "n_positions", whole(1), "Longest prompt plus answer, in tokens.", to="sequence_length"
    ),
    _compiler("neuron_optimize_level", whole(1, 3), "Compiler's -O level.", to="optlevel"),
    _compiler(
        "enable_mixed_precision_accumulation",
        BOOL,
        "Accumulate in float32.",
        to="mixed_precision_accumulation",
    ),
    _compiler("enable_saturate_infinity", BOOL, "Largest value, not inf.", to="saturate_infinity"),
    _argument(
        "compiled_graph_path", TEXT, "Where compiled graphs are kept.", to="compile_cache_url"
    ),
    _argument(
        "draft_model_compiled_path",
        TEXT,
        "The same for the draft model.",
        to="draft_compile_cache_url",
    ),
    _drafting("speculative_draft_model", TEXT, "Draft model.", to="model"),
    _drafting("speculative_length", whole(1), "Drafted tokens.", to="num_speculative_tokens"),
    _drafting(
        "draft_model_tp_size",
        whole(1),
        "Tensor parallel degree of the draft model.",
        to="draft_tensor_parallel_size",
    ),
    _argument("fuse_qkv", BOOL, "Fuse the three projections of attention.", to="fused_qkv"),
    _argument(
        "context_length_estimate",
        ITEMS,
        "Prompt lengths compiled.",
        to="context_encoding_buckets",
        env=("NEURON_CONTEXT_LENGTH_ESTIMATE",),
    ),
    _argument(
        "on_device_embedding", BOOL, "Embed on the device.", env=("NEURON_ON_DEVICE_EMBEDDING",)
    ),
    _argument(
        "on_device_generation",
        JSON,
        "Sample on the device, as each request says; penalties and seeds are refused then.",
        to="on_device_sampling",
        env=("NEURON_ON_DEV_GENERATION",),
    ),
    _argument(
        "sequence_parallel",
        BOOL,
        "Split norms over the sequence.",
        to="sequence_parallel_enabled",
        env=("NEURON_SEQUENCE_PARALLEL",),
    ),
    _argument("quantize", choice("static_int8"), "Weights in int8.", to="quantized", convert=bool),
    _argument("load_in_8bit", BOOL, "Older name of static_int8.", to="quantized"),
    _argument("amp", float_type(), "Older name of option.dtype.", to="dtype"),
)
